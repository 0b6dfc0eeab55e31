"""Which function of the product refers to which, read from the source by its annotations, with nothing imported.

Types are sets of the product's classes: a container counts as what it holds, and a class as what it makes. A call of a
protocol's method goes to each class that has all methods of the protocol.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

ROOMS = ("schemas", "streams", "agents", "deploy")
NAMESPACE = "slacktide."
Types: TypeAlias = frozenset[str]
Def: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
NOTHING: Types = frozenset()


@dataclass(slots=True)
class Function:
    """A function or method: what it refers to, in the order of its text."""

    name: str
    module: str
    node: Def
    owner: str = ""
    """Its class; "": none."""
    refers: dict[str, None] = field(default_factory=dict)
    """Functions, and classes that it builds."""


@dataclass(slots=True)
class Class:
    """A class with its annotated fields and those that its methods assign."""

    name: str
    module: str
    node: ast.ClassDef
    methods: dict[str, Function] = field(default_factory=dict)
    annotated: dict[str, ast.expr] = field(default_factory=dict)
    assigned: dict[str, Types] = field(default_factory=dict)

    @property
    def members(self) -> set[str]:
        """All names of methods and fields."""
        return {*self.methods, *self.annotated, *self.assigned}


class Source:
    """The modules of the product: their functions, classes, and what each name in them means."""

    def __init__(self, root: Path) -> None:
        self.functions: dict[str, Function] = {}
        self.classes: dict[str, Class] = {}
        self._imports: dict[str, dict[str, str]] = {}
        self._implementers: dict[str, list[str]] = {}
        self._names: dict[str, dict[str, str | ast.expr]] = {}
        """By module: a name's symbol, or its annotation or the expression that it is assigned."""
        self._types: dict[tuple[str, int], Types] = {}
        self.paths = {
            ".".join(path.with_suffix("").parts).removesuffix(".__init__"): path
            for room in ROOMS
            for path in sorted(found.relative_to(root) for found in (root / room).rglob("*.py"))
        }
        """By module."""
        for module, path in self.paths.items():
            self._read(module, ast.parse((root / path).read_text()))
        outermost = list(self.functions.values())
        for some in ([one for one in outermost if one.owner], outermost):  # only methods assign fields
            for function in some:
                _Body(self, function).read()
            self._implementers = self._found_implementers()

    def imports(self, module: str) -> Iterator[str]:
        """Yield the names that a module imports, with the module in which each stands."""
        return (found for found in self._imports[module].values())

    def module_of(self, name: str) -> str:
        """Return the module of a name, or the module itself."""
        return name if name in self.paths else self.module_of(name.rpartition(".")[0])

    def _read(self, module: str, tree: ast.Module) -> None:
        imported: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(NAMESPACE):
                imported |= {
                    one.asname or one.name: f"{node.module}.{one.name}"[len(NAMESPACE) :] for one in node.names
                }
        self._imports[module] = imported
        names = self._names[module] = dict[str, str | ast.expr](imported)
        for node in tree.body:
            if isinstance(node, Def):
                names[node.name] = self._function(module, module, node).name
            elif isinstance(node, ast.ClassDef):
                names[node.name] = self._class(module, node).name
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                names[node.targets[0].id] = node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                alias = isinstance(node.annotation, ast.Name) and node.annotation.id == "TypeAlias"
                names[node.target.id] = node.value if alias and node.value is not None else node.annotation

    def _function(self, module: str, within: str, node: Def, owner: str = "") -> Function:
        made = self.functions[f"{within}.{node.name}"] = Function(f"{within}.{node.name}", module, node, owner)
        return made

    def _class(self, module: str, node: ast.ClassDef) -> Class:
        made = self.classes[f"{module}.{node.name}"] = Class(f"{module}.{node.name}", module, node)
        for part in node.body:
            if isinstance(part, Def):
                made.methods[part.name] = self._function(module, made.name, part, made.name)
            elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                made.annotated[part.target.id] = part.annotation
        return made

    def nested(self, outer: Function, node: Def) -> Function:
        """Return the function that another defines for itself."""
        known = self.functions.get(f"{outer.name}.{node.name}")
        return known or self._function(outer.module, outer.name, node, outer.owner)

    def symbol(self, module: str, name: str) -> str | ast.expr:
        """Return what a name means in a module: a module, class or function, or the expression it is assigned."""
        found = self._names.get(module, {}).get(name, "")
        if not isinstance(found, str) or not found or found in self._names:
            return found
        where, _, what = found.rpartition(".")
        return (
            found if where == module or found in self.functions or found in self.classes else self.symbol(where, what)
        )

    def types(self, module: str, annotation: ast.expr | None) -> Types:
        """Return the product's classes in an annotation. Of a callable only what it returns."""
        key = (module, id(annotation))
        if key not in self._types:
            self._types[key] = self._types_of(module, annotation)
        return self._types[key]

    def _types_of(self, module: str, annotation: ast.expr | None) -> Types:
        match annotation:
            case None:
                return NOTHING
            case ast.Name(id=name):
                found = self.symbol(module, name)
                if not isinstance(found, str):
                    return NOTHING if name.isupper() else self.types(module, found)
                return frozenset({found}) if found in self.classes else NOTHING
            case ast.Attribute(value=ast.Name(id=name), attr=attr):
                found = self.symbol(module, name)
                return frozenset({f"{found}.{attr}"} & self.classes.keys())
            case ast.Subscript(value=ast.Name(id="Callable"), slice=ast.Tuple(elts=[_, returned])):
                return self.types(module, returned)
        parts = (part for part in ast.iter_child_nodes(annotation) if isinstance(part, ast.expr))
        return NOTHING.union(*(self.types(module, part) for part in parts))

    def line(self, name: str) -> Iterator[Class]:
        """Yield a class and its bases."""
        one = self.classes[name]
        yield one
        for base in one.node.bases:
            for above in self.types(one.module, base):
                yield from self.line(above)

    def implementers(self, name: str) -> list[str]:
        """Return the class, or for a protocol the classes that have all its methods."""
        return self._implementers.get(name, [name])

    def _found_implementers(self) -> dict[str, list[str]]:
        classes = [*self.classes.values()]
        protocols = [one for one in classes if any("Protocol" in ast.dump(base) for base in one.node.bases)]
        having = {one.name: {name: above.methods.get(name) for above in self.line(one.name) for name in above.members}
                  for one in classes if one not in protocols}  # fmt: skip
        return {protocol.name: [name for name, members in having.items() if _alike(protocol.methods, members)]
                for protocol in protocols if protocol.methods}  # fmt: skip

    def is_struct(self, name: str) -> bool:
        """Whether a class is a message, a dataclass or a named tuple."""
        line = list(self.line(name))
        bases = {ast.unparse(base).partition("[")[0] for above in line for base in above.node.bases}
        decorators = {ast.unparse(one).partition("(")[0] for above in line for one in above.node.decorator_list}
        return bool(bases & {"msgspec.Struct", "NamedTuple"} or decorators & {"dataclass"})

    def method(self, name: str, attr: str) -> Function | None:
        """Return a class's method, also of a base."""
        return next((above.methods[attr] for above in self.line(name) if attr in above.methods), None)

    def field(self, name: str, attr: str) -> Types | None:
        """Return the types of a class's field; None: it has no such field."""
        for above in self.line(name):
            if attr in above.annotated:
                return self.types(above.module, above.annotated[attr])
            if attr in above.assigned:
                return above.assigned[attr]
        return None

    def returned(self, function: Function) -> Types:
        """Return the types that a function returns."""
        return self.types(function.module, function.node.returns)


class _Body:
    """Reads one function's body with the types of its names."""

    def __init__(self, source: Source, function: Function, names: Mapping[str, Types] | None = None) -> None:
        self._source, self._function, self._inner = source, function, dict[str, Function]()
        self._names: dict[str, Types] = dict(names or {})
        arguments = function.node.args
        for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
            if one is not None:
                self._names[one.arg] = source.types(function.module, one.annotation)
        if function.owner and not names:
            self._names |= {"self": frozenset({function.owner}), "cls": frozenset({function.owner})}

    def read(self) -> None:
        """Note what the function refers to, and what it assigns to fields."""
        self._function.refers.clear()
        for statement in self._function.node.body:
            self._statement(statement)

    def _statement(self, node: ast.AST) -> None:
        match node:
            case ast.expr():
                self._types(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                inner = self._inner[node.name] = self._source.nested(self._function, node)
                if node.decorator_list:
                    self._refer(inner.name)
                _Body(self._source, inner, self._names).read()
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind(target, value)
            case ast.AnnAssign(target=target, annotation=annotation, value=value):
                self._statement(value) if value is not None else None
                self._take(target, self._source.types(self._function.module, annotation))
            case ast.For(target=target, iter=found) | ast.AsyncFor(target=target, iter=found):
                self._take(target, self._types(found))
                self._all([*node.body, *node.orelse])
            case ast.withitem(context_expr=found, optional_vars=target) if target is not None:
                self._take(target, self._types(found))
            case _:
                self._all(ast.iter_child_nodes(node))

    def _all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self._statement(node)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
                for one, of in zip(targets, values, strict=True):
                    self._bind(one, of)
            case ast.Attribute(value=ast.Name(id="self"), attr=attr), ast.Attribute(value=held, attr=of):
                for name in self._types(held):
                    if self._function.owner and (method := self._source.method(name, of)):
                        self._source.classes[self._function.owner].methods[attr] = method
                self._take(target, self._types(value))
            case _:
                self._take(target, self._types(value))

    def _take(self, target: ast.expr, types: Types) -> None:
        match target:
            case ast.Name(id=name):
                self._names[name] = self._names.get(name, NOTHING) | types
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                for one in targets:
                    self._take(one, types)
            case ast.Attribute(value=ast.Name(id="self"), attr=attr) if self._function.owner:
                fields = self._source.classes[self._function.owner].assigned
                fields[attr] = fields.get(attr, NOTHING) | types
            case _:
                self._types(target)

    def _types(self, node: ast.expr) -> Types:  # noqa: PLR0911 - a line for each kind
        match node:
            case ast.Name(id=name):
                return self._name(name)
            case ast.Attribute(value=value, attr=attr):
                return self._attribute(value, attr)
            case ast.Call(func=called, args=args, keywords=keywords):
                return self._call(called, [*args, *(one.value for one in keywords)])
            case ast.NamedExpr(target=target, value=value):
                self._take(target, found := self._types(value))
                return found
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                for one in node.generators:
                    self._take(one.target, self._types(one.iter))
                    self._all(one.ifs)
                made = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
                return NOTHING.union(*map(self._types, made))
            case ast.Lambda(args=arguments, body=body):
                self._names |= {one.arg: NOTHING for one in arguments.args}
                return self._types(body)
            case ast.Compare() | ast.Constant() | ast.JoinedStr():
                self._all(ast.iter_child_nodes(node))
                return NOTHING
        parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
        return NOTHING.union(*map(self._types, parts))

    def _name(self, name: str) -> Types:
        if name in self._inner:
            self._refer(self._inner[name].name)
            return self._source.returned(self._inner[name])
        if name in self._names:
            return self._names[name]
        return self._meant(self._source.symbol(self._function.module, name))

    def _meant(self, symbol: str | ast.expr) -> Types:
        if not isinstance(symbol, str):
            return self._source.types(self._function.module, symbol)
        if symbol in self._source.functions:
            self._refer(symbol)
            return self._source.returned(self._source.functions[symbol])
        return frozenset({symbol} & self._source.classes.keys())

    def _attribute(self, value: ast.expr, attr: str) -> Types:
        if isinstance(value, ast.Name) and value.id not in self._names:
            module = self._source.symbol(self._function.module, value.id)
            if isinstance(module, str) and module and module not in self._source.classes:
                return self._meant(self._source.symbol(module, attr))
        held = self._types(value)
        found = [types for name in held if (types := self._member(name, attr)) is not None]
        return NOTHING.union(*found) if found else held

    def _member(self, name: str, attr: str) -> Types | None:
        methods = [self._source.method(one, attr) for one in self._source.implementers(name)]
        for method in methods:
            if method is not None:
                self._refer(method.name)
        types = [self._source.returned(method) for method in methods if method is not None]
        return NOTHING.union(*types) if types else self._source.field(name, attr)

    def _call(self, called: ast.expr, arguments: list[ast.expr]) -> Types:
        found = self._types(called)
        given = [self._types(one.value if isinstance(one, ast.Starred) else one) for one in arguments]
        built = [name for name in found if name.rpartition(".")[2] == _last(called)]
        for name in built:
            self._refer(name)
            for one in ("__init__", "__post_init__"):
                if method := self._source.method(name, one):
                    self._refer(method.name)
        # Without classes of its own it passes on what it is given, as ``sorted`` and ``decode`` do.
        return found or NOTHING.union(*given)

    def _refer(self, name: str) -> None:
        if name != self._function.name:
            self._function.refers[name] = None


def _alike(wanted: Mapping[str, Function], members: Mapping[str, Function | None]) -> bool:
    """Check for members of these names; methods must have arguments of the same names."""
    return wanted.keys() <= members.keys() and all(
        (found := members[name]) is None or arguments(found.node) == arguments(one.node) for name, one in wanted.items()
    )


def arguments(node: Def) -> list[str]:
    """Return the names of a function's arguments."""
    return [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]


def _last(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
