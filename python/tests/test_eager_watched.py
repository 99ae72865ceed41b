"""What changes state unseen by a dispatch mode, or can't be repeated: the same bits, or a refusal."""

import contextlib
import ctypes
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import dlpack
from torch.utils._python_dispatch import _disable_current_modes
from training import AMPLE, CPU

from memfit.torch import _order
from memfit.torch.eager import Budget, disable, drop, is_enabled, is_resident, restore
from memfit.torch.meter import live_bytes

KIB = 1 << 10
UNSEEN = "written to unseen"


@pytest.fixture(autouse=True)
def nothing_stays_as_it_was_set():
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.set_default_dtype(dtype)
    torch.set_float32_matmul_precision("highest")
    torch.set_flush_denormal(False)
    disable()
    assert not is_enabled()


def same(run, *, least: int = 1) -> None:
    """`run` gives the same tensors plainly and where all that can go goes; `least` ops ran again."""
    torch.manual_seed(0)
    expected = run()
    torch.manual_seed(0)
    with Budget(AMPLE, evict_all=True) as budget:
        got = [tensor.clone() for tensor in run()]
        again = budget.stats["recomputed_ops"]
    for first, second in zip(expected, got, strict=True):
        assert first.dtype == second.dtype
        assert torch.equal(first, second)
    assert again >= least


def write_raw(tensor: torch.Tensor, value: float) -> None:
    """As an extension in C++ does it."""
    address = torch._C.StorageBase.data_ptr(tensor.untyped_storage())
    (ctypes.c_float * tensor.numel()).from_address(address)[:] = [value] * tensor.numel()


# Statistics that an op overwrites beside its results


def test_a_copy_of_running_statistics_is_of_its_time():
    def run():
        norm, x = nn.BatchNorm1d(64), torch.randn(4, 64)
        copies = []
        for _ in range(3):
            copies += [norm.running_mean.clone(), norm.running_var * 2, norm.num_batches_tracked + 1]
            norm(x)
        return copies

    same(run)


def test_an_average_over_the_state_is_the_same():
    def run():
        net = nn.Sequential(nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 2))
        average = {name: value.clone() for name, value in net.state_dict().items()}
        optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
        for _ in range(3):
            net(torch.randn(4, 3, 4, 4)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            for name, value in net.state_dict().items():
                average[name] = average[name] * 0.9 + value * 0.1
        return list(average.values())

    same(run)


def test_statistics_that_no_schema_declares_are_written():
    def run():
        mean, var, x = torch.zeros(8), torch.ones(8), torch.randn(16, 8)
        before = [mean * 3, var * 3]
        torch.batch_norm_update_stats(x, mean, var, 0.5)
        return [*before, mean, var]

    same(run)


def test_a_copy_of_the_statistics_of_an_instance_norm_in_inference_mode():
    def run():
        with torch.inference_mode():
            norm = nn.InstanceNorm1d(8, track_running_stats=True)
            copies = []
            for _ in range(3):
                copies += [norm.running_mean * 2, norm(torch.randn(2, 8, 5))]
            return copies

    same(run)


# Generators


@pytest.mark.parametrize(
    "draw",
    [
        lambda x, g: torch.poisson(x, generator=g),
        lambda x, g: torch._standard_gamma(x, generator=g),
        lambda x, g: torch._sample_dirichlet(x, generator=g),
        lambda x, g: torch.bernoulli(x / 4, generator=g),
        lambda x, g: torch.binomial(x, x / 4, generator=g),
        lambda x, g: torch.empty_like(x).normal_(generator=g),
    ],
)
def test_a_generator_is_the_one_that_was_given(draw):
    def run():
        own = torch.Generator().manual_seed(1)
        drawn = [draw(torch.full((64,), 3.0), own) for _ in range(4)]
        return [*drawn, torch.rand(4, generator=own), torch.rand(4)]

    same(run)


@pytest.mark.parametrize("module", [nn.LSTM, nn.GRU, nn.RNN])
def test_dropout_between_the_layers_of_a_recurrent_net_in_inference_mode(module):
    def run():
        with torch.inference_mode():
            net = module(8, 8, 2, dropout=0.5)
            y, _ = net(torch.randn(5, 3, 8))
            return [y, y * 2, torch.rand(3)]

    same(run)


# Memory that nothing was written to


@pytest.mark.parametrize(
    "make",
    [
        lambda x: torch.empty(64),
        torch.empty_like,
        lambda x: x.new_empty(64),
        lambda x: torch.empty_strided((64,), (1,)),
        lambda x: torch.empty_permuted((8, 8), (1, 0)).t().view(-1),
    ],
)
def test_what_is_filled_by_its_address_stays(make):
    def run():
        made = make(torch.ones(64))
        write_raw(made, 7.0)
        first = made + 1
        write_raw(made, 8.0)
        second = made + 1
        made[:10] = 3.0
        return [made, first, second, made * 2]

    same(run, least=0)


def test_what_is_filled_under_pressure_stays():
    def run():
        made = torch.empty(4 * KIB)
        write_raw(made, 7.0)
        others = [torch.full((4 * KIB,), 1.0 * i) for i in range(12)]
        sum(other.sum() for other in others)
        return [made, *others]

    expected = run()
    with Budget(live_bytes(CPU) + 120 * KIB) as budget:
        got = run()
        for first, second in zip(expected, got, strict=True):
            assert (first == restore(second)).sum() == 4 * KIB
        assert budget.stats["recomputed_ops"] > 0


def test_what_an_op_has_overwritten_as_a_whole_can_go():
    with Budget(AMPLE):
        # Larger than a generator's state: else that is not worth to be kept for it.
        made = torch.empty(64, 64)
        assert not drop(made)
        made[0] = 1.0
        assert not drop(made)
        made.normal_()
        expected = made.clone()
        assert drop(made)
        assert torch.equal(made, expected)
        out = torch.empty(64, 64)
        torch.add(made, 1.0, out=out)
        expected = out.clone()
        assert drop(out)
        assert torch.equal(out, expected)
        shorter = torch.empty(4 * KIB)
        with pytest.warns(UserWarning, match="resized"):
            torch.add(made[0], 1.0, out=shorter)
        assert not drop(shorter)


def test_the_mask_of_a_dropout_can_go():
    def run():
        x = torch.ones(64, requires_grad=True)
        y = F.dropout(x, 0.5)
        (y * y).sum().backward()
        return [y.detach(), x.grad]

    same(run)
    with Budget(AMPLE):
        mask = torch.empty_like(torch.ones(4 * KIB)).bernoulli_(0.5)
        assert drop(mask)


@pytest.mark.parametrize("module", [nn.LSTM, nn.GRU])
def test_packed_sequences(module):
    def run():
        net, lengths = module(4, 4, bidirectional=True), torch.tensor([5, 3, 2])
        packed = nn.utils.rnn.pack_padded_sequence(torch.randn(5, 3, 4), lengths)
        y, _ = net(packed)
        y, lengths = nn.utils.rnn.pad_packed_sequence(y)
        y.pow(2).mean().backward()
        return [packed.batch_sizes, y.detach(), lengths, *(p.grad for p in net.parameters())]

    same(run)


def test_a_mapped_file_may_change(tmp_path):
    path = tmp_path / "numbers"
    path.write_bytes(bytes(64 * 4))

    def run():
        path.write_bytes(bytes(64 * 4))
        mapped = torch.from_file(str(path), shared=True, size=64)
        first = mapped + 1
        with open(path, "r+b") as file:
            file.write(b"\x00\x00\x80\x3f" * 64)
        return [mapped, first, mapped + 1]

    same(run, least=0)


def test_a_lazy_layer_is_the_same():
    def run():
        net = nn.Sequential(nn.LazyConv1d(4, 3), nn.LazyBatchNorm1d(), nn.Flatten(), nn.LazyLinear(8))
        x = torch.randn(4, 6, 9)
        net(x)
        optimizer = torch.optim.AdamW(net.parameters())
        for _ in range(2):
            net(x).pow(2).mean().backward()
            optimizer.step()
        return [*(value.clone() for value in net.state_dict().values()), net(x).detach()]

    same(run)


# Writes that no mode sees


def in_another_thread(tensor):
    thread = threading.Thread(target=tensor.zero_)
    thread.start()
    thread.join()


def without_modes(tensor):
    with _disable_current_modes():
        tensor.zero_()


def to_a_view_without_modes(tensor):
    view = tensor[:8]
    with _disable_current_modes():
        view.zero_()


def by_address_and_told(tensor):
    write_raw(tensor, 0.0)
    torch.autograd.graph.increment_version(tensor)


UNSEEN_WRITES = [in_another_thread, without_modes, to_a_view_without_modes, by_address_and_told]


@pytest.mark.parametrize("write", UNSEEN_WRITES)
def test_what_was_computed_from_an_input_before_an_unseen_write(write):
    source = torch.randn(64)
    expected = source.exp()
    with Budget(AMPLE):
        there, gone, unread = source.exp(), source.exp(), source.exp()
        assert drop(gone)
        write(source)
        after = source + 1
        # It's noticed when the input is read again: what was there stays, and so does what is new.
        assert torch.equal(there, expected)
        assert not drop(there)
        assert not drop(after)
        with pytest.raises(RuntimeError, match=UNSEEN):
            gone + 1
        del gone
        assert torch.equal(after, source + 1)
        assert torch.equal(unread, expected)


@pytest.mark.parametrize("write", UNSEEN_WRITES)
def test_what_was_written_to_unseen_does_not_go(write):
    with Budget(AMPLE) as budget:
        made = torch.ones(64) * 3
        write(made)
        assert not drop(made)
        assert made[:8].sum() == 0
        others = made * 2
        assert not drop(others)
    assert budget.stats["recomputed_ops"] == 0
    assert made[:8].sum() == 0


@pytest.mark.parametrize("write", UNSEEN_WRITES)
def test_an_unseen_write_between_an_op_and_its_repetition_is_refused(write):
    source = torch.randn(64)
    with pytest.raises(RuntimeError, match=UNSEEN), Budget(AMPLE):
        made = source.exp()
        assert drop(made)
        write(source)
        made.clone()


def test_an_alias_that_was_exported_before_is_watched():
    def run(source, alias):
        first = source.exp()
        alias.zero_()
        return [first, source + 1]

    source = torch.randn(64)
    expected = run(source.clone(), torch.zeros(1))[0]
    alias = dlpack.from_dlpack(source)
    with Budget(AMPLE, evict_all=True):
        first, after = run(source, alias)
        assert torch.equal(first, expected)
        assert torch.equal(after, torch.ones(64))


@pytest.mark.parametrize("export", [lambda x: dlpack.to_dlpack(x), lambda x: x.__dlpack__()])
def test_an_alias_that_is_exported_within_is_watched(export):
    source = torch.randn(64)
    expected = source.exp()
    with Budget(AMPLE, evict_all=True):
        first, made = source.exp(), source * 1
        aliases = [dlpack.from_dlpack(export(tensor)) for tensor in (source, made)]
        second = made.exp()
        for alias in aliases:
            alias.zero_()
        assert torch.equal(first, expected)
        assert torch.equal(second, expected)
        assert made.sum() == 0


def test_memory_that_the_program_frees_or_turns_round():
    source = torch.randn(64)
    whole, expected = torch.arange(8, dtype=torch.int32), source.exp()
    with Budget(AMPLE, evict_all=True):
        first, second = source.exp(), whole + 0
        source.untyped_storage().resize_(0)
        whole.untyped_storage().byteswap(torch.int32)
        assert torch.equal(first, expected)
        assert torch.equal(second, torch.arange(8, dtype=torch.int32))
        assert whole[1] == 1 << 24


def test_what_counts_as_a_write_but_is_seen_does_no_harm():
    with Budget(AMPLE):
        made = torch.ones(4, 1, 4) * 2
        made.squeeze_()
        made.transpose_(0, 1)
        assert drop(made)
        made.add_(1)
        torch._foreach_add_([made[0], made[1]], 1.0)
        detached = made.detach()
        detached.mul_(2)
        later = made + 1
        assert drop(later)
        assert torch.equal(later, made + 1)
        with torch.no_grad():
            other = torch.ones(4) * 2
            other.data.add_(1)
            other.resize_(2)
        assert torch.equal(other, torch.full((2,), 3.0))


def test_a_tensor_that_is_given_other_memory_counts_for_that():
    def run():
        leaf = torch.randn(64)
        made = leaf * 2
        leaf.add_(1)
        between = leaf.exp()
        old = leaf.detach()
        leaf.data = torch.ones(64) * 3
        leaf.mul_(2)
        leaf.add_(1)
        return [made, between, leaf + 1, old * 3]

    same(run)
    source = torch.randn(64)
    expected = source.exp()
    with Budget(AMPLE) as budget:
        gone = source.exp()
        assert drop(gone)
        kept, source.data = source.detach(), torch.zeros(64)
        source.add_(1)
        assert torch.equal(gone, expected)
        assert budget.stats["recomputed_ops"] == 1
        assert kept.numel() == 64


# Global switches


def conv(x):
    return F.conv2d(x.view(1, 4, 8, 8), torch.linspace(-1, 1, 4 * 4 * 9).view(4, 4, 3, 3), padding=1)


@contextlib.contextmanager
def threads(count):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    yield
    torch.set_num_threads(before)


@contextlib.contextmanager
def dtype(kind):
    before = torch.get_default_dtype()
    torch.set_default_dtype(kind)
    yield
    torch.set_default_dtype(before)


@contextlib.contextmanager
def flush():
    torch.set_flush_denormal(True)
    yield
    torch.set_flush_denormal(False)


@contextlib.contextmanager
def precision(name):
    torch.set_float32_matmul_precision(name)
    yield
    torch.set_float32_matmul_precision("highest")


@contextlib.contextmanager
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def square(x):
    return x.view(16, 16) @ x.view(16, 16)


SWITCHES = {
    "oneDNN": (lambda: torch.backends.mkldnn.flags(enabled=False), conv),
    "flush": (flush, lambda x: x * 1e-38),
    "precision": (lambda: precision("medium"), square),
    "threads": (lambda: threads(2), lambda x: x.repeat(1000).sum()),
    "dtype": (lambda: dtype(torch.float64), lambda x: x.int() / 3),
    "deterministic": (deterministic, lambda x: x.index_put((torch.zeros(9).int(),), x[:9], accumulate=True)),
    "autocast": (lambda: torch.autocast("cpu"), square),
    "autocast with float16": (lambda: torch.autocast("cpu", dtype=torch.float16), square),
}


@pytest.mark.parametrize("name", SWITCHES)
@pytest.mark.parametrize("first", [True, False])
def test_an_op_is_repeated_under_the_switches_of_its_first_run(name, first, recwarn):
    context, op = SWITCHES[name]
    at_first, later = (context, contextlib.nullcontext) if first else (contextlib.nullcontext, context)
    x = torch.linspace(-3, 3, 256)
    with at_first():
        expected = op(x)
    with Budget(AMPLE) as budget:
        with at_first():
            made = op(x)
        assert drop(made)
        with later():
            restore(made)
        assert budget.stats["recomputed_ops"] >= 1
    assert made.dtype == expected.dtype
    assert torch.equal(made, expected)
    with at_first():
        again = op(x)
    assert torch.equal(again, expected)
    assert torch.equal(op(x), op(x))


# Ops that add in any order


@pytest.mark.parametrize(
    "op",
    [
        lambda index, x: torch.zeros(9).index_put((index,), x, accumulate=True),
        lambda index, x: torch.zeros(9).index_put_((index,), x),
        lambda index, x: torch.zeros(9).put(index, x, accumulate=True),
        lambda index, x: torch.zeros(9).scatter_add(0, index, x),
        lambda index, x: torch.zeros(9).index_add(0, index, x),
        lambda index, x: torch.zeros(9).scatter_reduce(0, index, x, "sum"),
        lambda index, x: torch.bincount(index, x),
        lambda index, x: torch.histc(x),
        lambda index, x: torch.ops.aten.embedding_dense_backward(x.view(-1, 1), index, 9, -1, False),
    ],
)
def test_what_threads_add_in_any_order_is_not_repeated(op):
    index, x = torch.arange(64) % 9, torch.randn(64)
    with Budget(AMPLE):
        alone = op(index, x)
        assert drop(alone)
        with threads(2):
            together = op(index, x)
            assert not drop(together)
            assert drop(x + 1)


def kernels() -> set[str]:
    import torchvision  # noqa: F401

    schemas = torch._C._jit_get_all_schemas()
    names = [schema.name.split("::") for schema in schemas]
    return {name[1].strip("_") for name in names if name[0] in ("aten", "torchvision")}


def test_every_name_of_an_unordered_kernel_is_one_of_pytorch():
    known = kernels()
    for name in (*_order.ON_CPU, *_order.ON_DEVICES):
        assert any(_order._pattern((name,)).match(kernel) for kernel in known), name


@pytest.mark.parametrize(
    "name",
    [
        "convolution_backward", "_scaled_dot_product_flash_attention_backward", "_flash_attention_backward",
        "_scaled_dot_product_efficient_attention_backward", "_efficient_attention_backward",
        "_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward",
        "max_pool2d_with_indices_backward",
        "_index_put_impl_", "index_put_", "_unsafe_index_put", "scatter", "scatter_", "scatter_add_",
        "index_copy", "roi_align", "_roi_align_backward", "cumsum", "upsample_bilinear2d_backward", "put_",
        "_upsample_bilinear2d_aa_backward", "_embedding_bag_dense_backward", "_ctc_loss_backward",
    ],
)  # fmt: skip
def test_kernels_of_cuda_that_add_in_any_order(name):
    assert _order.unordered(name, on_cpu=False) == "always"


@pytest.mark.parametrize("name", ["mm", "add_", "native_layer_norm", "upsample_bilinear2d", "index"])
def test_kernels_that_may_be_repeated(name):
    assert _order.unordered(name, on_cpu=False) == _order.unordered(name, on_cpu=True) == "never"


# Ops that fail half-way


@torch.library.custom_op("memfit_watched::half", mutates_args=["x", "y"])
def half(x: torch.Tensor, y: torch.Tensor) -> None:
    x[:2] = 9.0
    raise ValueError("half-way")


def copy_by_wrong_index(y):
    y.index_copy_(0, torch.tensor([0, 1, 1 << 20]), torch.full((3,), 9.0))


def custom(y):
    half(y, torch.ones(3))


def add_lists_of_wrong_shapes(y):
    torch._foreach_add_([y[:4], y[4:8]], [torch.ones(4), torch.ones(3)])


@pytest.mark.parametrize("fail", [copy_by_wrong_index, custom, add_lists_of_wrong_shapes])
def test_what_an_op_has_written_before_it_failed_stays(fail):
    def run():
        y = torch.ones(64) * 3
        before = y * 2
        with contextlib.suppress(IndexError, RuntimeError, ValueError):
            fail(y)
        after = y + 1
        return [y, before, after, y * before]

    same(run)


def test_what_a_failed_op_should_have_filled_is_not_filled():
    with Budget(AMPLE):
        made = torch.empty(4)
        with pytest.raises((RuntimeError, IndexError)):
            torch.add(torch.ones(3), torch.ones(2), out=made)
        with pytest.raises(RuntimeError):
            made.copy_(torch.ones(3))
        assert not drop(made)
        assert is_resident(made.fill_(2.0))
        assert drop(made)
        assert made.sum() == 8
