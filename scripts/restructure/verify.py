import sys
from pathlib import Path
import symbols, keyword
root=Path(sys.argv[1]); n=0; seen={}
for f in sys.argv[2:]:
  for i,line in enumerate(Path(f).read_text().splitlines(),1):
    if not line.strip() or line.startswith('#'): continue
    cols=line.split('\t')
    if len(cols)<3: print(f,i,'needs 3 tab-separated columns:',line); continue
    kind,old,new=cols[:3]
    n+=1
    if kind=='name':
        try: p=symbols.find_definition(root,old)
        except Exception as e: print(f,i,e); continue
        if not new.isidentifier() or keyword.iskeyword(new): print(f,i,'bad name',new)
        if seen.setdefault(old,new)!=new: print(f,i,old,'has two new names:',seen[old],new)
        owner=old.rpartition(':')[2].rpartition('.')[0]
        if owner and '(' not in old and new!=p.name and new in symbols.class_members(p.path,owner):
            print(f,i,old,'collides (unless that one is renamed too):',new)
    else:
        try: symbols.module_path(root,old)
        except Exception as e: print(f,i,e)
print(n,'rows')
