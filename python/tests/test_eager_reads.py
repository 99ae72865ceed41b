"""What is read, written or made without an op that a dispatch mode sees: reads restore, the rest is kept."""

import contextlib
import copy
import gc
import io
import pickle
import random
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from training import AMPLE, CPU, digest

import memfit.torch
from memfit import BudgetError
from memfit.torch import _glue
from memfit.torch.eager import Budget, drop, is_resident
from memfit.torch.meter import live_bytes

KIB = 1 << 10
MIB = 1 << 20


@pytest.fixture(autouse=True)
def no_warnings():
    """Prototypes of PyTorch's say so at every use."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def bits(value) -> list:
    """Of all tensors in `value`, in order."""
    if isinstance(value, (list, tuple)):
        return [bit for element in value for bit in bits(element)]
    if not isinstance(value, torch.Tensor):
        return [value]
    if value.is_nested:
        return bits(list(value.unbind()))
    if value.is_quantized:
        value = value.int_repr()
    return [digest(value.detach().to_dense() if value.layout != torch.strided else value.detach())]


def same_under_memfit(run, *, budget: int = AMPLE, evict_all: bool = True) -> None:
    """`run` gives the same bits with and without a budget, and leaves the generator alike."""

    def outcome(context) -> list:
        torch.manual_seed(3)
        with context:
            found = run()
        return [*bits(found), digest(torch.get_rng_state())]

    expected = outcome(contextlib.nullcontext())
    assert outcome(Budget(budget, evict_all=evict_all)) == expected


# Reads


def scalar() -> torch.Tensor:
    loss = torch.full((64,), 0.375).sum() / 8
    assert drop(loss)
    return loss


SCALARS = {
    "float": float,
    "int": int,
    "bool": bool,
    "complex": complex,
    "format": lambda loss: f"{loss:.4f}",
    "str": str,
    "item": lambda loss: loss.item(),
    "list to tensor": lambda loss: torch.tensor([loss, 1.0, loss]).tolist(),
    "nested lists": lambda loss: torch.tensor([[loss], [2 * loss]]).tolist(),
    "list to Tensor": lambda loss: torch.Tensor([loss, loss]).tolist(),
    "list to FloatTensor": lambda loss: torch.FloatTensor([loss, loss]).tolist(),
    "as_tensor": lambda loss: torch.as_tensor([loss]).tolist(),
    "asarray": lambda loss: torch.asarray([loss]).tolist(),
    "tensor of a tensor": lambda loss: torch.tensor(loss).item(),
    "new_tensor": lambda loss: torch.ones(1).new_tensor([loss]).tolist(),
    "new_tensor of a tensor": lambda loss: torch.ones(1).new_tensor(loss).item(),
    "numpy of a list": lambda loss: np.array([loss, loss]).tolist(),
    "numpy scalar": lambda loss: np.float32(loss).item(),
    "compare": lambda loss: loss > 2 and not loss > 4,
    "max": lambda loss: max(loss, 1.0).item(),
    "sum of list": lambda loss: sum([loss, loss]).item(),
    "addcmul": lambda loss: torch.ones(4).add(torch.ones(4), alpha=loss.item()).tolist(),
    "in a list": lambda loss: loss in [loss],
}


@pytest.mark.parametrize("read", SCALARS)
def test_scalars(read):
    expected = SCALARS[read](torch.full((64,), 0.375).sum() / 8)
    with Budget(AMPLE):
        assert SCALARS[read](scalar()) == expected


def numbers() -> torch.Tensor:
    return torch.arange(2048.0).mul(0.5)


def evicted() -> torch.Tensor:
    found = numbers()
    assert drop(found) and not is_resident(found)
    return found


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    return torch.load(io.BytesIO(file.getvalue()))


ARRAYS = {
    "tolist": lambda t: t.tolist(),
    "asarray": lambda t: np.asarray(t).tolist(),
    "array": lambda t: np.array(t, dtype=np.float64).tolist(),
    "numpy function": lambda t: np.add(t, 1).tolist(),
    "numpy view": lambda t: t.view(32, 64).t().numpy().tolist(),
    "from_dlpack": lambda t: torch.from_dlpack(t).clone(),
    "to_dlpack": lambda t: torch.from_dlpack(torch.utils.dlpack.to_dlpack(t)).clone(),
    "numpy from_dlpack": lambda t: np.from_dlpack(t).tolist(),
    "slices": lambda t: t[3:9].tolist() + t[::500].tolist(),
    "iteration": lambda t: [float(number) for number in t[:8]],
    "mask": lambda t: t[t > 1000].tolist(),
    "repr": repr,
    "format": lambda t: f"{t}",
    "deepcopy": copy.deepcopy,
    "pickle": lambda t: pickle.loads(pickle.dumps(t)),
    "save": saved,
    "tensor of a tensor": lambda t: torch.tensor(t),
    "as_tensor to another dtype": lambda t: torch.as_tensor(t, dtype=torch.float64),
    "asarray with a copy": lambda t: torch.asarray(t, copy=True),
    "legacy constructor": lambda t: t.new(t).clone(),
    "storage": lambda t: [t.storage()[3], *t.storage().tolist()[:5]],
    "storage as a list": lambda t: t.untyped_storage().tolist()[:64],
    "element of a storage": lambda t: t.untyped_storage()[7],
    "clone of a storage": lambda t: list(t.untyped_storage().clone())[:64],
    "copied storage": lambda t: copy.deepcopy(t.untyped_storage()).tolist()[:64],
    "whether a storage can grow": lambda t: t.untyped_storage().resizable(),
    "map": lambda t: torch.zeros(2048).map_(t, lambda zero, number: zero + number),
    "apply": lambda t: t.apply_(lambda number: number + 1),
    "to bytes": lambda t: t.numpy().tobytes(),
}


@pytest.mark.parametrize("read", ARRAYS)
def test_tensors(read):
    expected = bits(ARRAYS[read](numbers()))
    with Budget(AMPLE):
        assert bits(ARRAYS[read](evicted())) == expected


def test_reads_bring_back_where_there_is_hardly_room():
    base = live_bytes(CPU)
    with Budget(base + 40 * KIB):
        kept = [numbers() + at for at in range(4)]
        for at, tensor in enumerate(kept * 2):
            assert np.array(tensor.tolist())[1] == 0.5 + at % 4


def test_positions_and_lengths_are_read_by_kernels():
    def run():
        at = torch.arange(4) * 2
        assert [10, 11, 12, 13, 14][at[1] :] == [12, 13, 14]
        parts = torch.tensor_split(torch.arange(16.0), at[1:])
        lengths = torch.tensor([5, 3, 2]) + 0
        drop(lengths)
        rows = nn.utils.rnn.pack_padded_sequence(torch.randn(3, 5, 8), lengths, batch_first=True)
        packed = nn.utils.rnn.PackedSequence(rows.data * 1, rows.batch_sizes.clone())
        found, _ = nn.GRU(8, 4)(packed)
        return [*parts, nn.utils.rnn.pad_packed_sequence(found)[0], torch.arange(9)[at[1]]]

    same_under_memfit(run)


def test_a_state_of_the_generator_that_was_computed_is_set():
    def run():
        states = [torch.get_rng_state().clone()]
        states.append(states[0] + 0)
        first = torch.rand(4)
        for state in states:
            drop(state)
            torch.set_rng_state(state)
            assert torch.equal(torch.rand(4), first)
            torch.default_generator.set_state(state)
            assert torch.equal(torch.rand(4), first)
        return first

    same_under_memfit(run)


# Writes


WRITES = {
    "apply": lambda x: x.apply_(lambda number: number + 1),
    "map": lambda x: x.map_(torch.ones(2048), lambda number, other: number + other),
    "element of a storage": lambda x: x.untyped_storage().__setitem__(3, 1),
    "typed storage": lambda x: x.storage().__setitem__(3, 1.5),
    "storage filled": lambda x: x.untyped_storage().fill_(0),
    "storage copied": lambda x: x.untyped_storage().copy_(torch.ones(2048).untyped_storage()),
    "array": lambda x: x.numpy().__setitem__(3, 1.5),
}


@pytest.mark.parametrize("write", WRITES)
def test_what_was_computed_before_a_write_stays(write):
    def run():
        x = numbers()
        before = x.exp2().sin()
        drop(before)
        WRITES[write](x)
        after = x.sin()
        drop(x)
        return [before, after, x]

    same_under_memfit(run)


# Kernels in Python


@torch.library.custom_op("memfit_tests::through_numpy", mutates_args=())
def through_numpy(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.sin(x.numpy()))


@torch.library.custom_op("memfit_tests::by_address", mutates_args=())
def by_address(x: torch.Tensor) -> torch.Tensor:
    """What the launcher of a generated kernel asks for."""
    y = x * 2
    assert x.data_ptr() and y.data_ptr()
    return y + 1


TABLE = []


@torch.library.custom_op("memfit_tests::with_a_table", mutates_args=())
def with_a_table(x: torch.Tensor) -> torch.Tensor:
    return x + TABLE[-1]


@torch.library.custom_op("memfit_tests::in_place", mutates_args=("x",))
def in_place(x: torch.Tensor) -> None:
    x.mul_(3)


def backward_of_cube(ctx, gradient):
    (x,) = ctx.saved_tensors
    return gradient * 3 * x**2


@torch.library.custom_op("memfit_tests::cube", mutates_args=())
def cube(x: torch.Tensor) -> torch.Tensor:
    return x * x * x


cube.register_autograd(
    backward_of_cube, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs)
)


@pytest.mark.parametrize("op", [through_numpy, by_address, cube])
def test_ops_whose_kernels_are_in_python(op):
    def run():
        x = numbers()
        y = op(x + 1)
        z = y * 2
        for tensor in (x, y, z):
            drop(tensor)
        return [y, z, op(z).tanh(), x]

    same_under_memfit(run)


def test_a_kernel_in_python_reads_what_it_was_not_given():
    def run():
        TABLE.append(numbers() * 3)
        drop(TABLE[-1])
        y = with_a_table(torch.ones(2048))
        TABLE.clear()
        return y

    same_under_memfit(run)


def test_a_kernel_in_python_that_writes():
    def run():
        x = numbers() * 1
        before = x + 1
        drop(before)
        in_place(x)
        after = x + 1
        return [before, after, x]

    same_under_memfit(run)


def test_a_kernel_in_python_has_a_backward():
    def run():
        x = numbers().requires_grad_()
        cube(x.sin()).sum().backward()
        return x.grad

    same_under_memfit(run)


def test_what_a_kernel_in_python_draws_it_draws_once():
    @torch.library.custom_op("memfit_tests::named", mutates_args=())
    def named(x: torch.Tensor) -> torch.Tensor:
        return x + random.random() + float(np.random.rand())

    @named.register_fake
    def _(x):
        # As the kernels of collectives for meta tensors do.
        random.random(), np.random.rand(), torch.rand(1)
        return torch.empty_like(x)

    def run():
        random.seed(5)
        np.random.seed(5)
        y = named(numbers())
        return [y * 2, torch.tensor([random.random(), np.random.rand()]), torch.rand(3)]

    same_under_memfit(run)


def test_what_a_kernel_in_python_makes_inside_is_under_the_budget():
    @torch.library.custom_op("memfit_tests::large_inside", mutates_args=())
    def large_inside(x: torch.Tensor) -> torch.Tensor:
        return x.expand(1 << 20, 4).clone().sum(0)

    base = live_bytes(CPU)
    with Budget(base + 8 * MIB), pytest.raises(BudgetError, match="clone"):
        large_inside(torch.ones(4))


def test_kernels_that_were_not_written_for_meta_tensors_are_not_called_with_them():
    io_ = pytest.importorskip("torchvision.io")

    def run():
        picture = (torch.arange(3 * 16 * 16) % 251).to(torch.uint8).view(3, 16, 16)
        png, jpeg = io_.encode_png(picture), io_.encode_jpeg(picture)
        return [io_.decode_png(png), io_.decode_jpeg(jpeg).float() / 2, io_.decode_image(png) + 1]

    same_under_memfit(run)


# Tensors that are more than a window on one storage


def masked_encoder():
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    mask = torch.tensor([[False] * 3 + [True] * 2, [False] * 5])
    with torch.no_grad():
        return model(torch.randn(2, 5, 16) * 1, src_key_padding_mask=mask)


def nested_rows():
    rows = torch.nested.nested_tensor([torch.randn(3, 4) * 2, torch.randn(5, 4) * 2])
    return [nn.Linear(4, 4)(rows), torch.nested.to_padded_tensor(rows + rows, 0.0), *rows.unbind()]


def nested_from_padded():
    rows = torch._nested_tensor_from_mask(torch.randn(2, 6, 4) * 2, torch.arange(6).expand(2, 6) < 4)
    return torch.nested.to_padded_tensor(torch.softmax(rows, -1), 1.0)


def jagged_rows():
    parts = [torch.randn(3, 4) * 2, torch.randn(5, 4) * 2]
    rows = torch.nested.nested_tensor(parts, layout=torch.jagged)
    return [nn.Linear(4, 4)(rows).values(), (rows * 2).offsets()]


def coordinates():
    where = torch.randint(0, 50, (2, 300)) * 1
    matrix = torch.sparse_coo_tensor(where, torch.randn(300) * 2, (50, 50))
    doubled = matrix.coalesce() * 2
    return [matrix @ torch.randn(50, 8), doubled.values().exp(), doubled + matrix, matrix.to_dense() * 2]


def compressed_rows():
    dense = torch.randn(40, 40).relu() * 2
    rows = dense.to_sparse_csr()
    return [rows @ torch.randn(40, 4), rows.values() * 2, rows.to_dense(), dense.to_sparse_csc().to_dense()]


def sparse_gradients():
    weights = torch.randn(40, 40, requires_grad=True)
    where = torch.randint(0, 40, (2, 90))
    matrix = torch.sparse_coo_tensor(where, torch.randn(90), (40, 40)).coalesce()
    torch.sparse.mm(matrix, weights * 2).pow(2).sum().backward()
    return weights.grad


def quantised():
    x = torch.randn(64, 64) * 3
    whole = torch.quantize_per_tensor(x, 0.1, 3, torch.qint8)
    rows = torch.quantize_per_channel(
        x, torch.rand(64) + 0.1, torch.zeros(64, dtype=torch.int64), 0, torch.qint8
    )
    return [
        whole,
        whole.dequantize() * 2,
        rows.dequantize().sin(),
        torch.relu(whole),
        whole.view(32, 128).int_repr(),
    ]


def tagged_layouts():
    x = torch.randn(2, 8, 6, 6) * 2
    return [x.to_mkldnn().to_dense() + 1, x.to(memory_format=torch.channels_last) * 2]


MADE_OF_PARTS = [
    masked_encoder, nested_rows, nested_from_padded, jagged_rows, coordinates, compressed_rows,
    sparse_gradients, quantised, tagged_layouts,
]  # fmt: skip


@pytest.mark.parametrize("run", MADE_OF_PARTS)
def test_sparse_nested_and_quantised_tensors(run):
    same_under_memfit(run)
    same_under_memfit(run, budget=64 * MIB + live_bytes(CPU), evict_all=False)


SPARSE_OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.1),
    "sparse adam": lambda parameters: torch.optim.SparseAdam(list(parameters), lr=0.1),
}


@pytest.mark.parametrize("kind", SPARSE_OPTIMIZERS)
@pytest.mark.parametrize("bag", [False, True])
def test_sparse_embeddings(kind, bag):
    def run():
        table = (nn.EmbeddingBag if bag else nn.Embedding)(300, 16, sparse=True)
        optimizer = SPARSE_OPTIMIZERS[kind](table.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            table(torch.randint(0, 300, (8, 12))).relu().pow(2).sum().backward()
            optimizer.step()
        return [table.weight, table.weight.grad]

    same_under_memfit(run)


def test_what_a_sparse_tensor_is_made_of_counts():
    base = live_bytes(CPU)
    with Budget(base + 4 * MIB) as budget:
        matrix = torch.ones(256, 256).to_sparse()
        assert budget.stats["used_bytes"] >= base + matrix.values().nbytes + matrix.indices().nbytes
        with pytest.raises(BudgetError):
            [torch.ones(256, 256).to_sparse() for _ in range(8)]


# Modules that have not run


def test_a_lazy_module_that_has_not_run_is_there_when_the_budget_begins():
    lazy = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d())
    with Budget(AMPLE, evict_all=True):
        assert "LazyLinear" in repr(lazy) and repr(lazy[0].weight)
        assert lazy(torch.ones(2, 3)).shape == (2, 4)


# Other modes


class Watching(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_budget_that_begins_within_another_mode_outlives_it():
    with Watching() as mode:
        budget = memfit.torch.enable("1MiB" if live_bytes(CPU) < 512 * KIB else live_bytes(CPU) + MIB)
        torch.ones(4)
    try:
        assert mode.seen == ["aten.ones.default"]
        with pytest.raises(BudgetError):
            torch.ones(1 << 20)
        assert memfit.torch.is_enabled() and budget.stats["ops"] == 1
    finally:
        memfit.torch.disable()
    assert not _get_current_dispatch_mode_stack()


def test_a_budget_that_ends_within_another_mode_leaves_it():
    memfit.torch.enable(AMPLE)
    with Watching() as mode:
        torch.ones(4)
        memfit.torch.disable()
        torch.ones(4)
        assert len(_get_current_dispatch_mode_stack()) == 1
    assert len(mode.seen) == 2 and not _get_current_dispatch_mode_stack()


def test_modes_within_and_around_a_block_see_all_ops():
    with Watching() as outer, Budget(AMPLE) as budget, Watching() as inner:
        torch.ones(4) + 1
    assert len(outer.seen) == len(inner.seen) == 2 and budget.stats["ops"] == 2
    assert not _get_current_dispatch_mode_stack()


# Budgets


def test_a_budget_can_be_changed():
    gc.collect()
    base = live_bytes(CPU)
    with Budget(base + 64 * KIB) as budget:
        source = memfit.torch.pin(torch.arange(1024.0))
        parts = [source * at for at in range(10)]
        budget.budget = base + 16 * KIB
        assert budget.budget == base + 16 * KIB
        assert budget.stats["used_bytes"] <= base + 16 * KIB
        assert [float(part[1]) for part in parts] == list(range(10))
        with pytest.raises(BudgetError):
            budget.budget = base + KIB
        assert budget.budget == base + 16 * KIB
        with pytest.raises(BudgetError):
            torch.ones(8 * KIB)
        budget.budget = f"{base / KIB + 128:.0f}K"
        torch.ones(8 * KIB)
        assert budget.stats["peak_bytes"] <= base + 128 * KIB
    budget.budget = "1GiB"
    assert budget.budget == 1 << 30


@pytest.mark.parametrize(
    ("said", "meant"),
    [("8G", 8 << 30), ("1.5m", 3 << 19), (2.0**31, 1 << 31), (1e9, 10**9), ("512 KB", 512_000)],
)
def test_sizes(said, meant):
    assert Budget(said, device="cpu").budget == meant


def test_shares_of_the_memory():
    whole, half = Budget("100%", device="cpu").budget, Budget("50 %", device="cpu").budget
    assert whole // 2 == half and 1 << 28 < whole < 1 << 50


@pytest.mark.parametrize("size", ["0%", "120%", "x%", "-5%", float("nan"), float("inf"), 0.5, -2.0, "8Q"])
def test_what_is_no_size(size):
    with pytest.raises(ValueError, match="is not a size"):
        Budget(size, device="cpu")


# Memory that belongs to somebody outside


def test_what_reads_a_batch_of_somebody_else_can_go():
    """The recipe reads a copy of the bytes as they were, whatever becomes of them."""
    array = np.ones((4, 8), np.float32)
    layer = nn.Linear(8, 64)
    with Budget(AMPLE):
        batch = torch.from_numpy(array)
        first = layer(batch)
        expected = digest(first.detach())
        assert drop(first)
        array[:] = 3
        assert digest(first.detach()) == expected
        second = layer(batch)
        assert digest(second.detach()) != expected and drop(second)
        assert digest(first.detach()) == expected


def test_what_reads_a_batch_in_shared_memory_can_go():
    batch = torch.ones(4, 8).share_memory_()
    layer = nn.Linear(8, 64)
    with Budget(AMPLE):
        made = layer(batch)
        expected = digest(made.detach())
        assert drop(made)
        assert digest(made.detach()) == expected


def test_copies_of_batches_count_and_go():
    layer = nn.Linear(64, 256)
    with Budget(AMPLE) as budget:
        before = budget.stats["used_bytes"]
        for _ in range(5):
            batch = torch.from_numpy(np.ones((64, 64), np.float32))
            made = layer(batch)
            drop(made)
            assert budget.stats["used_bytes"] - before >= 2 * batch.nbytes
        del batch, made
        torch.ones(1)
        assert budget.stats["used_bytes"] - before < 1 * KIB


# CUDA, as far as it can be said without a device


@pytest.mark.parametrize(
    ("name", "effect"),
    [("convolution", "pure"), ("_cudnn_rnn", "once"), ("record_stream", "once"), ("mm", "pure")],
)
def test_what_is_doubtful_on_cuda_is_kept(name, effect, monkeypatch):
    monkeypatch.setattr(_glue, "on_device", "is_cuda")
    told = _glue.describe(getattr(torch.ops.aten, name).default)
    assert told["effect"] == effect and told["foreign"] == (name == "record_stream")


def test_convolutions_whose_algorithm_is_tried_out_stay(monkeypatch):
    monkeypatch.setattr(_glue, "on_device", "is_cuda")
    with torch.backends.cudnn.flags(benchmark=True):
        assert _glue.describe(torch.ops.aten.convolution.default)["effect"] == "once"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_work_on_a_side_stream_stays():
    with Budget("1GiB", device="cuda"):
        x = torch.ones(1 << 16, device="cuda") * 2
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            y = x * 3
        torch.cuda.current_stream().wait_stream(stream)
        assert not drop(y) and not drop(x)
        assert float(y.sum()) == 6 * (1 << 16)


def test_a_loss_that_is_computed_by_another_formula_is_refused():
    def loss(**options):
        logits, target = numbers().view(-1, 8).sin(), torch.arange(256) % 8
        return nn.functional.cross_entropy(logits, target, label_smoothing=0.1, **options)

    weight = torch.arange(1.0, 9.0)
    same_under_memfit(lambda: [loss(), loss(weight=weight), loss(ignore_index=1), loss(reduction="sum")])
    with Budget(AMPLE), pytest.raises(RuntimeError, match="by another formula"):
        loss(weight=weight, ignore_index=1)
