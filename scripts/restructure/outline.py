"""Outline of modules for name proposals: python outline.py ROOT PACKAGE_PATH..."""
import ast, sys
from pathlib import Path
root=Path(sys.argv[1])
def first(d): return (d or '').split('\n')[0][:110]
def show(node, mod, prefix='', indent=''):
    body=node.body
    for i,n in enumerate(body):
        nxt=body[i+1] if i+1<len(body) else None
        doc=nxt.value.value if isinstance(nxt,ast.Expr) and isinstance(getattr(nxt,'value',None),ast.Constant) and isinstance(nxt.value.value,str) else ''
        if isinstance(n,ast.ClassDef):
            print(f"{indent}class {n.name}({', '.join(map(ast.unparse,n.bases))})  # {first(ast.get_docstring(n))}")
            show(n,mod,prefix+n.name+'.',indent+'  ')
        elif isinstance(n,(ast.FunctionDef,ast.AsyncFunctionDef)):
            if n.name.startswith('__'): continue
            dec=' '.join('@'+ast.unparse(d).split('(')[0] for d in n.decorator_list)
            print(f"{indent}{dec} {'async ' if isinstance(n,ast.AsyncFunctionDef) else ''}def {n.name}({', '.join(a.arg for a in n.args.posonlyargs+n.args.args+n.args.kwonlyargs if a.arg!='self')}) -> {ast.unparse(n.returns) if n.returns else ''}  # {first(ast.get_docstring(n))}")
        elif isinstance(n,ast.Assign) and isinstance(n.targets[0],ast.Name) and n.targets[0].id!='__all__':
            print(f"{indent}{n.targets[0].id} = {ast.unparse(n.value)[:50]}  # {first(doc)}")
        elif isinstance(n,ast.AnnAssign):
            print(f"{indent}{ast.unparse(n.target)}: {ast.unparse(n.annotation)[:40]}  # {first(doc)}")
for arg in sys.argv[2:]:
    p=root/arg
    for f in sorted(p.glob('*.py') if p.is_dir() else [p]):
        t=ast.parse(f.read_text()); print(f"\n=== {f.relative_to(root)} :: {first(ast.get_docstring(t))}"); show(t,f)
