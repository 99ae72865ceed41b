"""Runs forward and backward of one step on fake tensors and returns the joint graph that AOTAutograd records.

Fake tensors have a shape, a dtype and a storage size, but no bytes: nothing is computed or allocated. The ops
are those that eager PyTorch runs (no decomposition), functionalised (no op mutates a tensor).
"""

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, cast
from unittest import mock

import torch
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeCopyMode, FakeTensorMode
from torch.func import functional_call
from torch.fx import traceback
from torch.utils import _pytree as pytree

from ._graph import ExportError

Loss = Callable[..., Any]
"""`loss_fn(model, *inputs)` (`**inputs` of a dictionary): a scalar, or a tuple that begins with it."""


@dataclasses.dataclass
class Traced:
    """The joint graph and how to read it."""

    nodes: list[torch.fx.Node]
    """In the order in which eager PyTorch runs them: forward, then backward. Last comes the output node."""
    module: torch.fx.GraphModule
    """Holds constants that the graph takes by attribute."""
    tensors: dict[str, str]
    """Path in the user's model of each parameter and buffer, by its name in a descriptor."""
    inputs: list[str]
    """Names of the sample inputs, in the order of `PlainAOTInput.idx`."""


class Step(torch.nn.Module):
    """What is traced: from sample inputs to the loss, or to the model's outputs."""

    def __init__(self, model: torch.nn.Module, loss_fn: Loss | None) -> None:
        super().__init__()
        self.model = model
        self.loss_fn = loss_fn

    def forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
        """Returns the loss first, if there is one; then every other tensor the model or `loss_fn` returns."""
        if self.loss_fn is None:
            outputs = pytree.tree_leaves(self.model(*args, **kwargs))
        else:
            loss, *others = pytree.tree_leaves(self.loss_fn(self.model, *args, **kwargs)) or [None]
            check_loss(loss)
            outputs = [loss, *(o.detach() if isinstance(o, torch.Tensor) else o for o in others)]
        return tuple(output for output in outputs if isinstance(output, torch.Tensor))


class Flat(torch.nn.Module):
    """The step with each parameter and buffer registered once, as `t0`, `t1` …, whatever modules share it.

    AOTAutograd would take a shared parameter for several, each with a gradient.
    """

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.call: Callable[..., tuple[torch.Tensor, ...]] = lambda tensors, *operands: functional_call(
            step, tensors, operands
        )
        self.names: dict[str, str] = {}
        """Path in the user's model of each tensor."""
        for path, parameter in step.named_parameters():
            self.register_parameter(self.alias(path), parameter)
        for path, buffer in step.named_buffers():
            self.register_buffer(self.alias(path), buffer)

    def alias(self, path: str) -> str:
        self.names[f"t{len(self.names)}"] = path
        return f"t{len(self.names) - 1}"

    def forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
        """As the step's."""
        tensors = {path: getattr(self, name) for name, path in self.names.items()}
        return self.call(tensors, args, kwargs)


def check_loss(loss: Any) -> None:
    """Raises `ExportError` if `loss` can't be differentiated."""
    hint = "hint: `loss_fn(model, *inputs)` returns one number made from the model's parameters"
    if not isinstance(loss, torch.Tensor):
        raise ExportError(f"`loss_fn` returned `{type(loss).__name__}`, not a tensor\n{hint}")
    if loss.numel() != 1:
        raise ExportError(f"`loss_fn` returned a tensor of shape `{list(loss.shape)}`, not a scalar\n{hint}")
    if not loss.requires_grad:
        raise ExportError(f"the loss depends on no parameter that requires a gradient\n{hint}")


def trace(model: torch.nn.Module, sample_inputs: Any, loss_fn: Loss | None) -> Traced:
    """Records one step. Without `loss_fn`: the forward pass alone, without gradients.

    The model may be real, on the `meta` device, or made of fake tensors; `sample_inputs` (a tuple, a
    dictionary or one tensor) likewise. Raises `ExportError` if the model can't be traced.
    """
    begin_autograd()
    tensors = [*model.parameters(), *model.buffers(), *pytree.tree_leaves(sample_inputs)]
    mode = detect_fake_mode(tensors) or FakeTensorMode(allow_non_fake_inputs=True)
    if any(isinstance(tensor, torch.Tensor) and tensor.device.type == "meta" for tensor in tensors):
        with Fakes(mode):
            model, sample_inputs = copy.deepcopy((model, sample_inputs))
    inputs = pytree.tree_map_only(torch.Tensor, lambda t: as_fake(mode, t), sample_inputs)
    if not isinstance(inputs, (tuple, list, dict)):
        inputs = (inputs,)
    names = [pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(inputs)[0]]
    operands = ((), dict(inputs)) if isinstance(inputs, dict) else (tuple(inputs), {})
    step = Flat(Step(model, loss_fn))
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad() if loss_fn is None else torch.enable_grad())
        stack.enter_context(mode)
        stack.enter_context(module_names(model))
        stack.enter_context(traceback.preserve_node_meta())
        try:
            try:
                joint = aot_export_joint_with_descriptors(stack, step, operands)
            except DataDependentOutputException:
                # Some models look at contents only where they may: they ask whether they are being compiled.
                stack.enter_context(mock.patch.object(torch.compiler, "_is_compiling_flag", True))
                joint = aot_export_joint_with_descriptors(stack, step, operands)
        except ExportError:
            raise
        except Exception as error:
            first = str(error).strip().split("\n")[0]
            raise ExportError(
                f"the model can't be traced: `{type(error).__name__}: {first}`\n"
                "hint: it must run with these sample inputs, and must not look at tensors' contents "
                "(`.item()`, `if x.sum() > 0`)"
            ) from error
    graph = joint.graph_module
    return Traced(list(graph.graph.nodes), graph, step.names, [f"input{name}" for name in names])


def begin_autograd() -> None:
    """To be called before there are fake tensors, so that copies of the process, which `fit` makes, can run
    backward passes: fake tensors bring a CUDA device along, for which the first one starts a thread.
    """
    with torch.inference_mode(False), torch.enable_grad():
        torch.ones(1, requires_grad=True, device="cpu").sum().backward()


class Fakes(FakeCopyMode):
    """What is copied becomes fake. The `meta` device lacks some gradients: its tensors become the CPU's."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        copies = func in (torch._C.TensorBase.clone, torch.Tensor.__deepcopy__)
        if not copies or args[0].device.type != "meta":
            return super().__torch_function__(func, types, args, kwargs)
        tensor, *memo = args
        if memo and id(tensor) in memo[0]:
            return memo[0][id(tensor)]
        with self.fake_mode, torch.no_grad():
            made = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")
        made.requires_grad_(bool(memo) and tensor.requires_grad)
        if memo:
            memo[0][id(tensor)] = made
        return made


def as_fake(mode: FakeTensorMode, tensor: torch.Tensor) -> torch.Tensor:
    """The fake twin of `tensor`; itself if it is fake already."""
    fake = mode.from_tensor(tensor, static_shapes=True)
    return fake.requires_grad_(tensor.requires_grad) if fake.is_leaf else fake


@contextlib.contextmanager
def building() -> Iterator[None]:
    """While it lasts, new modules are made of fake tensors, and `torch.nn.init` leaves weights as they are.

    Weights have no contents, so there is nothing to initialise, and some initialisers look at what they made.
    `module.to(dtype)` replaces parameters, because PyTorch can't convert fake ones in place.
    """
    converted: dict[torch.Tensor, torch.Tensor] = {}

    def convert(
        module: torch.nn.Module, fn: Callable[..., torch.Tensor], recurse: bool = True
    ) -> torch.nn.Module:
        for child in module.children() if recurse else ():
            child._apply(fn)
        for key, parameter in module._parameters.items():
            if parameter is not None:
                if parameter not in converted:
                    new = torch.nn.Parameter(fn(parameter.detach()), parameter.requires_grad)
                    converted[parameter] = new
                module._parameters[key] = cast(torch.nn.Parameter, converted[parameter])
        for key, buffer in module._buffers.items():
            if buffer is not None:
                if buffer not in converted:
                    converted[buffer] = fn(buffer)
                module._buffers[key] = converted[buffer]
        return module

    names = [name for name in vars(torch.nn.init) if name.endswith("_") and not name.startswith("_")]
    saved = {name: getattr(torch.nn.init, name) for name in names}
    try:
        for name in names:
            setattr(torch.nn.init, name, lambda tensor, *args, **kwargs: tensor)
        with (
            mock.patch.object(torch.nn.Module, "_apply", convert),
            FakeTensorMode(allow_non_fake_inputs=True),
        ):
            yield
    finally:
        for name, function in saved.items():
            setattr(torch.nn.init, name, function)


@contextlib.contextmanager
def module_names(model: torch.nn.Module) -> Iterator[None]:
    """While it lasts, each recorded node learns the dotted path of the innermost module that runs.

    AOTAutograd copies it from each forward node to the backward nodes of the same autograd function.
    """
    handles = []
    running: list[Any] = []

    def enter(name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            running.append(traceback.annotate({"memfit.module": name}))
            running[-1].__enter__()

        return hook

    def leave(*_: Any) -> None:
        running.pop().__exit__(None, None, None)

    try:
        for name, module in model.named_modules():
            handles.append(module.register_forward_pre_hook(enter(name)))
            handles.append(module.register_forward_hook(leave, always_call=True))
        yield
    finally:
        for handle in handles:
            handle.remove()
        while running:
            # Left over where a module raised: the annotations it would restore may be gone.
            with contextlib.suppress(KeyError):
                leave()
