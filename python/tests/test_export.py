"""What a captured graph says about storages, reuse, randomness, mutation, updates and costs."""

import json

import pytest
import torch
import torch.nn.functional as F
from graphs import capture, classify, kinds, names, ops, roles, total, value
from torch import nn

from memfit.torch._graph import ExportError


class Apply(nn.Module):
    """A model made of a function and one parameter `w`."""

    def __init__(self, function, *shape):
        super().__init__()
        self.w = nn.Parameter(torch.ones(shape or (4, 4)))
        self.function = function

    def forward(self, *inputs):
        return self.function(self.w, *inputs)


# --- storages


def test_views_are_no_values():
    def views(w, x):
        y = torch.relu(x @ w)
        first, second = y.t().unsqueeze(0).expand(3, 4, 4)[1].reshape(16).view(4, 4).chunk(2, dim=1)
        parts = first.split(2)
        return parts[1].squeeze() + second.select(0, 0)

    graph = capture(Apply(views), torch.randn(4, 4))
    assert kinds(graph) == ["aten.mm.default", "aten.relu.default", "aten.clone.default", "aten.add.Tensor"]
    clone, add = graph["ops"][2:]
    assert clone["reads"] == graph["ops"][1]["writes"], "the transposed `reshape` copies, and copies `y`"
    assert add["reads"] == clone["writes"], "both halves are views of one storage"


def test_an_expanded_input_has_the_size_of_its_storage():
    graph = capture(Apply(lambda w, x: w * x), torch.randn(4, 1).expand(4, 4))
    assert graph["values"][value(graph, "input[0]")]["bytes"] == 16
    assert "moved" not in ops(graph, "aten.mul.Tensor")[0], "16 + 64 + 64 bytes, as its operands"


def test_a_slice_of_a_large_storage_keeps_all_of_it():
    graph = capture(Apply(lambda w, x: torch.exp(w) + x), torch.randn(100, 4)[:4])
    assert graph["values"][value(graph, "input[0]")]["bytes"] == 1600
    add = ops(graph, "aten.add.Tensor")[0]
    assert names(graph, [pair[0] for pair in add["may"]]) == ["exp"], "a part is no place for the whole"


def test_an_output_that_is_a_view_of_an_input():
    graph = capture(Apply(lambda w, x: (x.view(16), x @ w)), torch.randn(4, 4))
    assert names(graph, graph["results"]) == ["input[0]", "mm"]


def test_an_output_that_is_a_view_of_a_parameter_follows_the_update():
    def loss(model, x):
        return total(model, x), model.w.t()

    graph = capture(Apply(lambda w, x: x @ w), torch.randn(4, 4), loss, "sgd")
    assert names(graph, graph["results"]) == ["sum_1", "w'"]


def test_tuple_outputs_and_dictionaries_of_inputs():
    class Two(nn.Module):
        def forward(self, *, a, b):
            return {"sum": a + b, "rest": (a - b, [a * b], None, 3)}

    graph = capture(Two(), {"a": torch.randn(3), "b": torch.randn(3)})
    assert names(graph, graph["results"]) == ["add", "sub", "mul"]
    assert roles(graph, "input") == ["input['a']", "input['b']"]
    assert roles(graph, "output") == ["add", "sub", "mul"]


def test_a_parameter_shared_by_two_modules_is_one_value():
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
    model[1].weight = model[0].weight
    graph = capture(model, torch.randn(2, 8), total, "adamw")
    assert roles(graph, "parameter") == ["0.weight", "0.weight'"]
    assert len(ops(graph, "aten._fused_adamw_.default")) == 1
    assert [op for op in ops(graph, "aten.add.Tensor") if op["phase"] == "backward"], (
        "two gradients are added"
    )


def test_an_unused_parameter_stays_and_gets_no_update():
    model = Apply(lambda w, x: x @ w)
    model.unused = nn.Parameter(torch.ones(3))
    model.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
    graph = capture(model, torch.randn(4, 4), total, "sgd")
    assert roles(graph, "parameter") == ["w", "unused", "frozen", "w'"]
    assert len(kinds(graph, "update")) == 1


# --- reuse


def test_element_wise_ops_may_take_their_inputs_bytes():
    def chain(w, x):
        y = torch.relu(x @ w)
        y = F.gelu(y) * torch.sigmoid(y)
        return torch.where(y > 0, y, y.exp()).clamp(max=3).add_(1)

    graph = capture(Apply(chain), torch.randn(4, 4))
    pairs = {op["kind"]: len(op.get("may", [])) for op in graph["ops"]}
    assert pairs == {
        "aten.mm.default": 0,
        "aten.relu.default": 1,
        "aten.gelu.default": 1,
        "aten.sigmoid.default": 1,
        "aten.mul.Tensor": 2,
        "aten.gt.Scalar": 0,  # a byte for four
        "aten.exp.default": 1,
        "aten.where.self": 2,  # not the condition
        "aten.clamp.default": 1,
        "aten.add.Tensor": 1,
    }


@pytest.mark.parametrize(
    ("function", "allowed"),
    [
        (lambda w, x: x.exp() + x.exp().t(), 1),  # other strides
        (lambda w, x: (e := x.exp()) + e.t(), 0),  # the same value, once more in other strides
        (lambda w, x: (e := x.exp()) * e, 1),  # the same value twice, alike
        (lambda w, x: x.exp() + x.exp()[0], 1),  # broadcast
        (lambda w, x: w + x.exp(), 1),  # not the parameter
        (lambda w, x: torch.softmax(x.exp(), 0), 0),
        (lambda w, x: x.exp().double(), 0),
    ],
)
def test_operands_that_may_not_be_overwritten(function, allowed):
    graph = capture(Apply(function), torch.randn(4, 4))
    assert len(graph["ops"][-1].get("may", [])) == allowed


def test_backward_of_relu_reuses_the_gradient():
    graph = capture(Apply(lambda w, x: torch.relu(x @ w)), torch.randn(4, 4), lambda m, x: (m(x) ** 2).sum())
    (op,) = ops(graph, "aten.threshold_backward.default")
    assert op["may"], op


# --- randomness and communication


def test_dropout_is_seeded():
    graph = capture(nn.Dropout(0.5).train(), torch.randn(8))
    assert [(op["kind"], op.get("effect")) for op in graph["ops"]] == [
        ("aten.native_dropout.default", "seeded")
    ]
    assert graph["ops"][0]["may"] == [[0, 1]]
    assert kinds(capture(nn.Dropout(0.5).eval(), torch.randn(8))) == []


@pytest.mark.parametrize(("p", "effects"), [(0.0, []), (0.5, ["aten.native_dropout.default"])])
def test_attention_is_seeded_with_dropout_only(p, effects):
    def attend(w, q):
        return F.scaled_dot_product_attention(q, q, q, dropout_p=p)

    graph = capture(Apply(attend), torch.randn(1, 2, 4, 8))
    assert [op["kind"] for op in graph["ops"] if op.get("effect") == "seeded"] == effects


@pytest.mark.parametrize("function", [torch.bernoulli, torch.rand_like, lambda x: x + torch.randn(4)])
def test_random_ops_are_seeded(function):
    graph = capture(Apply(lambda w, x: function(x)), torch.rand(4))
    assert graph["ops"][0]["effect"] == "seeded"


@pytest.fixture
def process_group():
    from torch import distributed
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield distributed.group.WORLD
    distributed.destroy_process_group()


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
def test_collectives_run_once_and_waiting_is_a_view(process_group):
    from torch.distributed._functional_collectives import all_reduce

    graph = capture(Apply(lambda w, x: all_reduce(x.exp(), "sum", process_group) + 1), torch.randn(4))
    assert [(op["kind"], op.get("effect", "pure")) for op in graph["ops"]] == [
        ("aten.exp.default", "pure"),
        ("_c10d_functional.all_reduce.default", "collective"),
        ("aten.add.Tensor", "pure"),
    ]
    assert graph["ops"][2]["reads"] == graph["ops"][1]["writes"]


# --- mutation


def test_batch_norm_updates_its_statistics_in_place():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True)).train()
    graph = capture(model, torch.randn(2, 3, 8, 8), total, "sgd")
    (norm,) = ops(graph, "aten._native_batch_norm_legit_functional.default")
    pairs = [names(graph, pair) for pair in norm["must"]]
    assert pairs == [["1.running_mean", "1.running_mean'"], ["1.running_var", "1.running_var'"]]
    (count,) = [op for op in ops(graph, "aten.add.Tensor") if "must" in op]
    assert names(graph, count["must"][0]) == ["1.num_batches_tracked", "1.num_batches_tracked'"]
    assert len(roles(graph, "state")) == 6
    (relu,) = ops(graph, "aten.relu.default")
    assert relu["may"] == [[norm["writes"][0], relu["writes"][0]]]
    assert not ops(graph, "aten.copy_.default")


def test_in_evaluation_statistics_are_constants():
    graph = capture(nn.BatchNorm2d(4).eval(), torch.randn(2, 4, 8, 8))
    assert roles(graph, "constant") == ["running_mean", "running_var", "num_batches_tracked"]


def test_a_batch_norm_that_runs_twice_makes_two_versions():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(4)

        def forward(self, x):
            return self.norm(self.norm(x))

    graph = capture(Twice(), torch.randn(8, 4))
    means = [name for name in roles(graph, "state") if "mean" in name]
    assert means == ["norm.running_mean", "norm.running_mean'", "norm.running_mean''"]
    assert not ops(graph, "aten.copy_.default")


class Buffered(nn.Module):
    """A buffer `b` that `function` mutates."""

    def __init__(self, function, *shape):
        super().__init__()
        self.register_buffer("b", torch.zeros(shape or (4,)))
        self.function = function

    def forward(self, x):
        return self.function(self.b, x)


@pytest.mark.parametrize(
    ("function", "last"),
    [
        (lambda b, x: b.add_(x).sum(), "aten.add.Tensor"),
        (lambda b, x: b.mul_(2).add_(x).sum(), "aten.add.Tensor"),
        (lambda b, x: b.index_put_((torch.tensor([0, 1]),), x[:2]).sum(), "aten.index_put.default"),
        (lambda b, x: b.copy_(x.exp()).sum(), "aten.copy.default"),
        (lambda b, x: b.copy_(b.flip(0)).sum(), "aten.copy.default"),
    ],
)
def test_in_place_ops_on_buffers_are_must_pairs(function, last):
    graph = capture(Buffered(function), torch.randn(4))
    assert roles(graph, "state")[0] == "b"
    mutating = [op for op in graph["ops"] if op.get("must")]
    assert mutating[-1]["kind"] in (last, "aten.copy_.default"), graph["ops"]


def test_a_buffer_that_is_read_later_is_copied_to():
    def swap(b, x):
        old = b.clone()
        b.copy_(x @ x)
        return old

    graph = capture(Buffered(swap, 4, 4), torch.randn(4, 4))
    assert [op["kind"] for op in graph["ops"] if op.get("must")], graph["ops"]
    assert names(graph, graph["results"]) == ["clone"]


def test_a_mutated_input():
    graph = capture(Apply(lambda w, x: x.mul_(2) @ w), torch.randn(4, 4))
    (mul,) = ops(graph, "aten.mul.Tensor")
    assert names(graph, mul["must"][0]) == ["input[0]", "input[0]'"]


# --- gradients and updates


def test_without_an_optimizer_gradients_are_results():
    graph = capture(nn.Linear(4, 2), torch.randn(3, 4), total)
    assert names(graph, graph["results"]) == ["sum_1", "weight.grad", "bias.grad"]
    assert roles(graph, "output") == ["sum_1"]
    assert kinds(graph, "update") == []


@pytest.mark.parametrize(
    ("optimizer", "kind", "states", "moved"),
    [
        ("sgd", "aten._fused_sgd_.default", [], 3),
        ("momentum", "aten._fused_sgd_.default", ["momentum_buffer"], 5),
        ("adamw", "aten._fused_adamw_.default", ["exp_avg", "exp_avg_sq"], 7),
    ],
)
def test_updates_happen_in_place(optimizer, kind, states, moved):
    graph = capture(nn.Linear(4, 2), torch.randn(3, 4), total, optimizer)
    assert kinds(graph, "update") == [kind] * 2
    op = next(op for op in graph["ops"] if op["name"] == f"{optimizer}:weight")
    persistent = ["weight", *(f"weight.{state}" for state in states)]
    assert [names(graph, pair) for pair in op["must"]] == [[name, f"{name}'"] for name in persistent]
    assert names(graph, op["reads"]) == ["weight", "weight.grad", *persistent[1:]]
    assert op.get("moved", sum(graph["values"][v]["bytes"] for v in op["reads"] + op["writes"])) == moved * 32
    assert len(roles(graph, "state")) == 4 * len(states)
    assert names(graph, graph["results"]) == ["sum_1"]


def test_a_gradient_in_another_layout_is_copied_as_autograd_does():
    graph = capture(Apply(lambda w, x: w.t() * x), torch.randn(4, 4), total)
    (op,) = [op for op in ops(graph, "aten.clone.default") if op["phase"] == "backward"]
    assert names(graph, op["writes"]) == ["w.grad"]


def test_one_gradient_of_two_parameters_is_copied():
    model = Apply(lambda w, x: x)
    model.v = nn.Parameter(torch.ones(4, 4))
    graph = capture(model, torch.randn(4, 4), lambda m, x: ((m.w + m.v) * x).sum(), "sgd")
    assert {"w.grad", "v.grad"} <= set(roles(graph, "gradient"))


def test_a_gradient_of_an_input_is_a_result():
    graph = capture(Apply(lambda w, x: x @ w), torch.randn(4, 4, requires_grad=True), total, "sgd")
    assert names(graph, graph["results"]) == ["sum_1", "input[0].grad"]
    assert len(kinds(graph, "update")) == 1


def test_phases_and_modules():
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 2)))
    graph = capture(model, (torch.randn(3, 4), torch.tensor([0, 1, 0])), classify, "sgd")
    modules = {(op.get("phase", "forward"), op["kind"]): op.get("module", "") for op in graph["ops"]}
    assert modules["forward", "aten.relu.default"] == "1.0"
    assert modules["backward", "aten.threshold_backward.default"] == "1.0"
    assert [op["module"] for op in ops(graph, "aten.addmm.default")] == ["0", "1.1"]
    assert {op["module"] for op in ops(graph, "aten._fused_sgd_.default")} == {"0", "1.1"}
    inference = capture(model, torch.randn(3, 4))
    assert [op["module"] for op in inference["ops"]] == ["0", "1.0", "1.1"]


# --- costs


def test_flops_of_matrices_and_convolutions():
    graph = capture(nn.Linear(64, 32), torch.randn(16, 64), total)
    assert ops(graph, "aten.addmm.default")[0]["flops"] == 2 * 16 * 64 * 32
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, groups=2))
    graph = capture(model, torch.randn(2, 3, 10, 12), total)
    plain, grouped = ops(graph, "aten.convolution.default")
    assert plain["flops"] == 2 * (2 * 8 * 10 * 12) * (3 * 3 * 3)
    assert grouped["flops"] == 2 * (2 * 8 * 10 * 12) * (8 // 2 * 3 * 3)
    back, first = ops(graph, "aten.convolution_backward.default")
    assert back["flops"] == 2 * grouped["flops"]
    assert first["flops"] == plain["flops"], "no gradient of the images"


def test_convolutions_have_algorithms_with_less_work_and_scratch_memory():
    def step(layer):
        return capture(nn.Sequential(nn.Conv2d(3, 8, 1), layer), torch.randn(2, 3, 12, 12), total)

    # By layer: of each algorithm its scratch bytes, and how often its work goes into the plain one's.
    tiles, points = 2 * 6 * 6, 7 * 12
    transformed = 16 * (tiles * (8 + 8) + 8 * 8)
    spectra = 2 * (8 + 8) + 8 * 8
    cases = [
        (nn.Conv2d(8, 8, 3, padding=1), [4 * transformed, 4 * 2 * 8 * 9 * 144]),
        (nn.Conv2d(8, 8, 7, padding=3), [8 * spectra * points, 4 * 2 * 8 * 49 * 144]),
        (nn.Conv2d(8, 8, 3, padding=1, stride=2), [4 * 2 * 8 * 9 * 36]),
        (nn.Conv2d(8, 8, 3, padding=1, groups=8), [4 * 2 * 8 * 9 * 144]),
        (nn.Conv2d(8, 8, 1), []),
    ]
    for layer, scratch in cases:
        graph = step(layer)
        forward = ops(graph, "aten.convolution.default")[1]
        backward = ops(graph, "aten.convolution_backward.default")[0]
        for op, products in [(forward, 1), (backward, 2)]:
            ways = op.get("algorithms", [])
            assert [way["workspace"] for way in ways] == scratch, layer
            sizes = [graph["values"][at]["bytes"] for at in op["reads"] + op["writes"]]
            for way in ways:
                assert 0 < way["flops"] < op["flops"], layer
                assert way["moved"] >= sum(sizes) + 2 * products * way["workspace"], layer
        once, twice = forward.get("algorithms", []), backward.get("algorithms", [])
        assert [2 * way["flops"] for way in once] == [way["flops"] for way in twice]
    winograd = ops(step(cases[0][0]), "aten.convolution.default")[1]
    assert winograd["algorithms"][0]["flops"] == winograd["flops"] * 16 // 36 + 8 * transformed
    assert all("algorithms" not in op for op in step(nn.ReLU())["ops"])


def test_flops_and_bytes_of_other_ops():
    def some(w, x):
        return torch.exp(x), x.sum(), F.embedding(torch.zeros(2, dtype=torch.int64), w), x.to(torch.bfloat16)

    graph = capture(Apply(some, 1000, 4), torch.randn(8, 8))
    by_kind = {op["kind"]: op for op in graph["ops"]}
    assert (by_kind["aten.exp.default"]["flops"], by_kind["aten.sum.default"]["flops"]) == (64, 64)
    assert by_kind["aten.embedding.default"]["moved"] == 2 * 8 + 2 * (2 * 4 * 4), "two rows, not the table"
    assert by_kind["aten._to_copy.default"].get("flops", 0) == 0
    assert graph["values"][by_kind["aten._to_copy.default"]["writes"][0]]["dtype"] == "bf16"


def test_bf16_arithmetic_has_its_dtype():
    graph = capture(
        nn.Linear(4, 4).to(torch.bfloat16), torch.randn(2, 4, dtype=torch.bfloat16), total, "adamw"
    )
    assert ops(graph, "aten.addmm.default")[0]["dtype"] == "bf16"
    assert graph["values"][value(graph, "weight.exp_avg")]["dtype"] == "bf16"


# --- larger things


def test_checkpointing_runs_forward_ops_again_in_backward():
    from torch.utils.checkpoint import checkpoint

    block = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    graph = capture(block, torch.randn(2, 8), lambda m, x: checkpoint(m, x, use_reentrant=False).sum())
    assert kinds(graph).count("aten.relu.default") == 1
    assert kinds(graph, "backward").count("aten.relu.default") <= 1


def test_autocast_inside_the_model():
    def half(w, x):
        with torch.autocast("cpu", torch.bfloat16):
            return x @ w

    graph = capture(Apply(half), torch.randn(4, 4), lambda m, x: m(x).float().sum(), "sgd")
    assert ops(graph, "aten.mm.default")[0]["dtype"] == "bf16"


def test_fifty_gigabytes_of_parameters_take_none():
    import resource

    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(50_000, 50_000, bias=False) for _ in range(5)))
        x = torch.empty(8, 50_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    graph = capture(model, x, total, "adamw")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert sum(graph["values"][v]["bytes"] for v in range(5)) == 50_000_000_000
    assert grown < 200_000, f"{grown} kB were allocated"


def test_writing_into_a_cache_touches_only_what_is_written():
    def write(b, x):
        b[:, 5:6] = x
        return (b * 2).sum()

    graph = capture(Buffered(write, 2, 128, 8), torch.randn(2, 1, 8))
    (op,) = [op for op in graph["ops"] if op.get("must")]
    assert (op["kind"], op["moved"]) == ("aten.slice_scatter.default", 2 * 64)


def test_sparse_tensors_are_refused():
    with pytest.raises(ExportError, match="makes a sparse tensor\nhint: `sparse=False`"):
        capture(nn.Embedding(10, 4, sparse=True), torch.zeros(3, dtype=torch.int64), total)


def test_a_model_on_the_meta_device_has_the_gradients_of_a_real_one():
    def graph(device: str):
        with torch.device(device):
            net = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 3))
            x, labels = torch.empty(2, 4), torch.empty(2, dtype=torch.int64)
        return capture(net, (x, labels), classify, "momentum")

    assert graph("meta")["ops"] == graph("cpu")["ops"]
    assert any(op.get("phase") == "backward" for op in graph("meta")["ops"])


# --- attributes


def test_attributes_tell_apart_what_kinds_and_operands_do_not():
    def function(w, x):
        y = x @ w
        pairs = [
            (y.softmax(0), y.softmax(1)),
            (y @ w, y.t() @ w),
            (y.sum(0), y.sum(0, keepdim=True)),
            (y * 2.0, y * 3.0),
            (y[:2].exp(), y[2:].exp()),
            (y.to(torch.float16), y.to(torch.bfloat16)),
        ]
        twins = [(y.tanh(), y.tanh()), (torch.add(y, w, alpha=2), torch.add(y, w, alpha=2))]
        return tuple(out for pair in pairs + twins for out in pair)

    graph = capture(Apply(function), torch.randn(4, 4))
    made = {at: op for op in graph["ops"] for at in op["writes"]}
    told = [
        (made[at]["kind"], made[at]["reads"], made[at].get("attributes"))
        for at in graph["results"]
        if at in made
    ]
    first = graph["ops"][0]
    assert first["attributes"] == "0=$0:float32[4,4];1=$1:float32[4,4];out0=float32[4,4]"
    outs = [row for row in told if row[2] is not None][:16]
    assert len(outs) == 16
    differ = [outs[at] != outs[at + 1] for at in range(0, 16, 2)]
    assert differ == [True] * 6 + [False] * 2, outs
    kinds_and_reads = [outs[at][:2] == outs[at + 1][:2] for at in range(0, 16, 2)]
    assert sum(kinds_and_reads) >= 7, "they differ by nothing else"


def test_attributes_are_the_same_in_every_capture():
    def captured():
        return capture(Apply(lambda w, x: F.layer_norm(torch.cat([x @ w] * 60), (4,))), torch.randn(4, 4))

    first, second = (json.dumps(captured(), sort_keys=True) for _ in range(2))
    assert first == second
    long = ops(json.loads(first), "aten.cat.default")[0]["attributes"]
    assert long.startswith("sha256:") and len(long) == 71
