"""modules.map -> module rows; reports modules that are not mapped."""
import sys
from pathlib import Path
root=Path(sys.argv[1]) / 'src/toolyard'
rows={}
for line in Path(__file__).with_name('modules.map').read_text().splitlines():
    if not line or line[0]=='#': continue
    head,_,rest=line.partition(': '); old,new=head.split('>')
    for item in rest.split():
        a,_,b=item.partition('='); b=b or a
        rows[f'toolyard.{old}.{a}']=f'toolyard.{new}.{b}'
rows['toolyard.core.composition']='toolyard.core.composition'
have={'toolyard.'+str(p.relative_to(root))[:-3].replace('/','.') for p in root.rglob('*.py') if p.name!='__init__.py' and 'migrations' not in p.parts}
for m in sorted(have-set(rows)): print('UNMAPPED',m,file=sys.stderr)
for m in sorted(set(rows)-have): print('GONE',m,file=sys.stderr)
rows={a:b for a,b in rows.items() if a in have}
vals=list(rows.values()); dup={v for v in vals if vals.count(v)>1}; print('DUP',dup,file=sys.stderr)
# package __init__ files that move
pk={'model':'types','wire':'protocol','content':'results','people':'accounts','agents.native':'agents.builtin_tools','config.exporting':'config.exporters','config.importing':'config.importers','catalog.views':'catalog.schemas','cli.chatting':'cli.chat'}
for a,b in pk.items(): rows['toolyard.'+a]='toolyard.'+b
for a,b in sorted(rows.items()):
    if a!=b: print(f'module\t{a}\t{b}')
