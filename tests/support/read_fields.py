"""Which fields of Kafka's requests the handlers read, found in their source with the types that it declares.

A value has the type of its annotation, and an element has that of its list. A name that is read of a value that is declared as
`Any`, or with a protocol, counts for the requests of the handlers that use its module.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
from triolog.protocol.kafka.apis import APIS, Api
from triolog.protocol.schema.fields import Primitive, all_fields

WRAPPERS: Final = frozenset({"in_turns", "iter", "list", "tuple", "sorted", "reversed", "set", "copy"})
CONTAINERS: Final = frozenset(
    {"list", "Sequence", "Iterable", "Iterator", "Collection", "AsyncIterator", "deque", "Mapping", "dict"}
)


@attrs.frozen
class Either:
    """One of several types."""

    types: tuple[Any, ...]


@attrs.frozen
class Many:
    """A list, or the values of a mapping."""

    element: Any


Type = Any
"""A structure, the name of a class of the handlers, Either, Many, a tuple of types, ANY; None where it is not known."""
ANY: Final = Many(None)
"""Declared to be anything, and so are its attributes and elements."""


@attrs.define
class Source:
    """Owner of what is known of all modules together."""

    structures: Mapping[str, type]
    classes: dict[str, dict[str, ast.expr]] = attrs.field(factory=dict)
    """Annotated attributes by name of the class."""
    aliases: dict[str, ast.expr] = attrs.field(factory=dict)
    returns: dict[str, ast.expr] = attrs.field(factory=dict)
    read: set[tuple[type, str]] = attrs.field(factory=set)
    loose: dict[str, set[str]] = attrs.field(factory=dict)
    """Names of attributes of values that are declared to be anything, by module."""
    protocols: set[str] = attrs.field(factory=set)
    imports: dict[str, set[str]] = attrs.field(factory=dict)
    """By module, those of the folder that it imports."""
    handlers: dict[str, str] = attrs.field(factory=dict)
    """The module of each function."""

    def unread(self, api: Api) -> Iterator[str]:
        """The fields of an API's requests that no code reads, as Structure.field."""
        handler = next(
            self.handlers[name] for name in (api.key.name.lower(), f"take_{api.key.name.lower()}") if name in self.handlers
        )
        loose = set().union(*(self.loose[each] for each in {handler, *self.imports.get(handler, ())} if each in self.loose))
        for cls, name in request_fields(api):
            if (cls, name) not in self.read and name not in loose:
                yield f"{cls.__name__}.{name}"

    def declared(self, node: ast.expr | None) -> Type:
        """The type that an annotation names."""
        match node:
            case ast.Constant(value=str(text)):
                return self.declared(ast.parse(text, mode="eval").body)
            case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="messages" | "in_transaction"), attr=name):
                if name == "Any" or name in self.protocols:
                    return ANY
                if name in self.aliases:
                    return self.declared(self.aliases[name])
                return self.structures.get(name) or (name if name in self.classes else None)
            case ast.BinOp(left=left, right=right):
                found = [each for each in (self.declared(left), self.declared(right)) if each is not None]
                return Either(tuple(found)) if len(found) > 1 else next(iter(found), None)
            case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=parts)):
                return tuple(map(self.declared, parts))
            case ast.Subscript(value=ast.Name(id=name), slice=inner) if name in CONTAINERS:
                inner = inner.elts[-1] if isinstance(inner, ast.Tuple) else inner
                return Many(self.declared(inner))
        return None


class Function(ast.NodeVisitor):
    """One function: the types of its names, then what it reads."""

    def __init__(self, source: Source, module: str, types: dict[str, Type]) -> None:
        self.source, self.module, self.types = source, module, types

    def infer(self, node: ast.expr) -> Type:
        match node:
            case ast.Name(id=name):
                return self.types.get(name)
            case ast.Await(value=inner) | ast.NamedExpr(value=inner):
                return self.infer(inner)
            case ast.Attribute(value=base, attr=name):
                return self.attribute(self.infer(base), name)
            case ast.BoolOp(values=values):
                return next((found for each in values if (found := self.infer(each)) is not None), None)
            case ast.IfExp(body=body, orelse=orelse):
                return self.infer(body) or self.infer(orelse)
            case ast.Subscript(value=base):
                return _element(self.infer(base))
            case ast.Call(func=ast.Attribute(value=base, attr="values")):
                return self.infer(base)
            case ast.Call(func=ast.Attribute(value=base, attr="items")):
                return Many((None, _element(self.infer(base))))
            case ast.Call(func=ast.Name(id="enumerate"), args=[inner, *_]):
                return Many((None, _element(self.infer(inner))))
            case ast.Call(func=ast.Name(id="zip"), args=args):
                return Many(tuple(_element(each) for each in map(self.infer, args)))
            case ast.Call(func=ast.Name(id=name), args=[inner, *_]) if name in WRAPPERS:
                return self.infer(inner)
            case ast.Call(func=ast.Name(id=name)):
                return self.source.declared(self.source.returns.get(name)) or (name if name in self.source.classes else None)
            case (
                ast.DictComp(value=element)
                | ast.ListComp(elt=element)
                | ast.GeneratorExp(elt=element)
                | ast.SetComp(elt=element)
            ):
                return Many(self.infer(element))
        return None

    def attribute(self, base: Type, name: str) -> Type:
        if base is ANY:
            return ANY
        if isinstance(base, Either):
            found = [self.attribute(each, name) for each in base.types]
            elements = tuple(each.element for each in found if isinstance(each, Many))
            return Many(Either(elements)) if elements else Either(tuple(found))
        if isinstance(base, str):
            return self.source.declared(self.source.classes[base].get(name))
        if not isinstance(base, type):
            return None
        for field in all_fields(base):
            if field.name == name:
                element = None if isinstance(field.element, Primitive) else field.element
                return Many(element) if field.is_array else element
        return None

    def bind(self, target: ast.expr, found: Type) -> None:
        match target:
            case ast.Name(id=name) if found is not None:
                self.types[name] = found
            case ast.Tuple(elts=parts) if isinstance(found, tuple):
                for part, each in zip([p for p in parts if not isinstance(p, ast.Starred)], found, strict=False):
                    self.bind(part, each)

    def learn(self, function: ast.AST) -> None:
        for node in ast.walk(function):
            match node:
                case ast.For(target=target, iter=values) | ast.AsyncFor(target=target, iter=values):
                    self.bind_element(target, values)
                case ast.comprehension(target=target, iter=values):
                    self.bind_element(target, values)
                case ast.Assign(targets=[ast.Tuple(elts=parts)], value=ast.Tuple(elts=values)):
                    for part, value in zip(parts, values, strict=False):
                        self.bind(part, self.infer(value))
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        found = self.infer(value)
                        if isinstance(target, ast.List) and isinstance(found, Many):
                            target, found = target.elts[0], _element(found)
                        self.bind(target, found)
                case ast.AnnAssign(target=target, annotation=annotation):
                    self.bind(target, self.source.declared(annotation))
                case ast.NamedExpr(target=target, value=value):
                    self.bind(target, self.infer(value))

    def bind_element(self, target: ast.expr, values: ast.expr) -> None:
        self.bind(target, _element(self.infer(values)))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        found = self.infer(node.value)
        if isinstance(node.ctx, ast.Load):
            for base in found.types if isinstance(found, Either) else (found,):
                if isinstance(base, type):
                    self.source.read.add((base, node.attr))
                elif base is ANY:
                    self.source.loose[self.module].add(node.attr)
        self.generic_visit(node)


def _element(found: Type) -> Type:
    return found if found is ANY else found.element if isinstance(found, Many) else None


def request_fields(api: Api) -> Iterator[tuple[type, str]]:
    """Every field of an API's request, and of the structures in it, that a version has that is served."""
    left = [api.request]
    while left:
        cls = left.pop()
        for field in api.fields_of(cls):
            yield cls, field.name
            if isinstance(field.element, type) and not isinstance(field.element, Primitive):
                left.append(field.element)


def analyze(folder: Path) -> Source:
    """Everything that the modules of a folder read."""
    structures = {}
    for api in APIS.values():
        module = importlib.import_module(api.request.__module__)
        structures |= {name: value for name, value in vars(module).items() if isinstance(value, type) and attrs.has(value)}
    source = Source(structures)
    trees = {path.stem: ast.parse(path.read_text()) for path in sorted(folder.glob("*.py"))}
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and any(
                isinstance(each, ast.Name) and each.id == "Protocol" for each in node.bases
            ):
                source.protocols.add(node.name)
            elif isinstance(node, ast.ClassDef):
                fields = [each for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)]
                source.classes[node.name] = {each.target.id: each.annotation for each in fields}  # type: ignore[union-attr]
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
                source.handlers.setdefault(node.name, module)
                source.returns.setdefault(node.name, node.returns)
        for node in tree.body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.BinOp() as union):
                    source.aliases[name] = union
                case ast.ImportFrom(level=1, module=str(name)):
                    source.imports.setdefault(module, set()).add(name)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                source.aliases |= {each.asname: ast.Name(id=each.name) for each in node.names if each.asname is not None}
    for module, tree in trees.items():
        source.loose[module] = set()
        for owner in [tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))]:
            for node in owner.body:
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    _analyze(source, module, node, owner)
    return source


def _analyze(source: Source, module: str, node: ast.FunctionDef | ast.AsyncFunctionDef, owner: ast.AST) -> None:
    types: dict[str, Type] = {"self": owner.name} if isinstance(owner, ast.ClassDef) else {}
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
            for argument in (*inner.args.args, *inner.args.kwonlyargs):
                if argument.annotation is not None:
                    types[argument.arg] = source.declared(argument.annotation)
    function = Function(source, module, {name: found for name, found in types.items() if found is not None})
    for _ in range(3):
        function.learn(node)
    for statement in node.body:
        function.visit(statement)
