"""The command line: `python -m memfit.torch.export`."""

import argparse
import importlib
import pathlib
import sys
import time
import warnings
from typing import Any

from . import _graph, zoo
from ._graph import ExportError, Graph
from ._trace import building
from ._update import OPTIMIZERS
from .export import capture, versions


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    p = argparse.ArgumentParser(
        prog="python -m memfit.torch.export",
        description="Write one training or inference step of a PyTorch model as a graph memfit can plan.",
        epilog="models: " + ", ".join(zoo.MODELS),
    )
    add = p.add_argument
    own = "or `module:function` of your own, which returns `(model, sample_inputs[, loss_fn])`"
    add("model", nargs="?", help=f"a name from the list below, {own}")
    add("-o", "--output", metavar="FILE", help="`.json`, or `.json.zst` (Zstandard)")
    add("--batch", type=int, metavar="N", help="images or sequences in a batch")
    add("--seq", type=int, metavar="N", help="tokens or time steps in a sequence")
    optimizers = [*OPTIMIZERS, "none"]
    add("--optimizer", choices=optimizers, default="none", help="what follows backward [none: nothing]")
    add("--infer", action="store_true", help="the forward pass alone, in evaluation mode")
    add("--corpus", metavar="DIR", help="write every graph of the corpus into DIR, and the table of them")
    return p


def run(argv: list[str] | None) -> int:
    """Runs the command; returns 0, 2 (usage) or 3 (the model can't be exported)."""
    p = parser()
    options = p.parse_args(argv)
    warnings.filterwarnings("ignore", module=r"(?!memfit)")
    try:
        if options.corpus:
            write_corpus(pathlib.Path(options.corpus))
        elif not options.model or not options.output:
            p.error("`MODEL` and `-o FILE` are needed (or `--corpus DIR`)")
        else:
            make(options).write(options.output)
    except ExportError as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    return 0


def make(options: argparse.Namespace) -> Graph:
    """The graph that the command line asks for."""
    _graph.check_path(options.output)
    if options.infer and options.optimizer != "none":
        raise ExportError(
            f"`--infer` has no optimizer, but `--optimizer {options.optimizer}` was given\nhint: drop one"
        )
    with building():
        model, inputs, loss_fn, packages = example(options)
    if not options.infer and loss_fn is None:
        raise ExportError(
            f"`{options.model}` returns no loss function\n"
            "hint: return `(model, sample_inputs, loss_fn)`, or use `--infer`"
        )
    model.train(not options.infer)
    return capture(
        model,
        inputs,
        None if options.infer else loss_fn,
        None if options.optimizer == "none" else options.optimizer,
        name=options.model,
        origin=f"{command(options)} ({versions(*packages)})",
    )


def example(options: argparse.Namespace) -> tuple[Any, Any, Any, list[str]]:
    """Model, inputs, loss function, and the packages (besides torch) whose versions matter."""
    if ":" in options.model:
        for option in ("batch", "seq"):
            if getattr(options, option) is not None:
                raise ExportError(
                    f"`--{option}` is for models of the list\nhint: choose it in `{options.model}`"
                )
        return (*own(options.model), [])
    known = zoo.MODELS.get(options.model)
    if known is None:
        names = ", ".join(f"`{name}`" for name in zoo.MODELS)
        raise ExportError(
            f"unknown model `{options.model}`\nhint: one of {names}, or `module:function` of your own"
        )
    if options.seq is not None and not known.sequence:
        raise ExportError(f"`{options.model}` has no sequence\nhint: drop `--seq`")
    options.batch = known.batch if options.batch is None else options.batch
    options.seq = known.sequence if options.seq is None else options.seq
    for name, size in (("batch", options.batch), ("seq", options.seq or 1)):
        if size < 1:
            raise ExportError(f"`--{name} {size}` is less than 1")
    made = known.make(options.batch, options.seq, options.infer)
    return (*made, [known.package] if known.package != "torch" else [])


def own(reference: str) -> tuple[Any, Any, Any]:
    """What the user's `module:function` returns; the loss function may be missing."""
    module_name, _, function_name = reference.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise ExportError(
            f"`{reference}` can't be loaded: {error}\n"
            f"hint: run in the folder of `{module_name}.py`, or set `PYTHONPATH`"
        ) from error
    made = function()
    if not isinstance(made, tuple) or len(made) not in (2, 3):
        raise ExportError(
            f"`{reference}` returned no tuple\nhint: return `(model, sample_inputs)` or `(…, loss_fn)`"
        )
    return made if len(made) == 3 else (*made, None)


def command(options: argparse.Namespace) -> str:
    """The command line again, in one order and without folders."""
    words = ["python -m memfit.torch.export", options.model]
    if options.batch is not None:
        words += ["--batch", str(options.batch)]
    if options.seq:
        words += ["--seq", str(options.seq)]
    words += ["--infer"] if options.infer else ["--optimizer", options.optimizer]
    return " ".join([*words, "-o", pathlib.PurePath(options.output).name])


def write_corpus(folder: pathlib.Path) -> None:
    """Writes every graph of the corpus and the table that lists them."""
    rows = []
    for entry in zoo.CORPUS:
        start, path = time.monotonic(), folder / entry.file
        graph = make(parser().parse_args([*entry.options, "-o", str(path)]))
        graph.write(path)
        size = path.stat().st_size
        print(f"{entry.file}: {len(graph.ops)} ops, {len(graph.values)} values, {size} bytes, "
              f"{time.monotonic() - start:.1f} s", file=sys.stderr)  # fmt: skip
        source = zoo.MODELS[entry.model].source
        counts = f"{len(graph.ops)} | {len(graph.values)} | {size / 1000:.0f} kB"
        rows.append(f"| `{entry.file}` | {source} | `{' '.join(entry.options)}` | {counts} |")
    head = ["| file | source | arguments | ops | values | size |", "|---|---|---|--:|--:|--:|"]
    write_table(folder / "README.md", "\n".join(head + rows))


def write_table(path: pathlib.Path, table: str) -> None:
    """Puts the table between its marks in the corpus' README, or makes a file of it."""
    begin, end = "<!-- table: begin -->", "<!-- table: end -->"
    text = path.read_text(encoding="utf-8") if path.exists() else f"{begin}\n{end}\n"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    path.write_text(f"{before}{begin}\n{table}\n{end}{after}", encoding="utf-8")
