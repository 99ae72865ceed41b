"""Lightning's trainer within a budget, by both of its names."""

from pathlib import Path
from typing import Any

import pytest
import torch
from test_integrations import QUICK, Rows, check_metrics, check_usable, left, started, within_and_without
from training import CPU

import memfit
import memfit.torch
from memfit.torch.meter import live_bytes

pytestmark = pytest.mark.filterwarnings("ignore")
NAMES = ("lightning.pytorch", "pytorch_lightning")


def trained(
    name: str, folder: Path, budget: int | None, rows_of_log: list[Any], fails: bool = False, **more: Any
) -> Any:
    lightning = pytest.importorskip(name, reason="NOT TESTED: `pip install lightning` has it")
    from memfit.torch.integrations.lightning import MemfitCallback

    class Log(lightning.loggers.logger.Logger):
        name, version = "log", 0

        def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
            rows_of_log.append({**metrics, "step": step})

        def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
            pass

    class Module(lightning.LightningModule):
        def __init__(self, net: Any) -> None:
            super().__init__()
            self.net, self.losses = net, []

        def training_step(self, batch: Any, at: int) -> Any:
            loss = self.net(**batch)["loss"]
            if fails and at == 3:
                raise ZeroDivisionError("in mid-step")
            self.losses.append(loss.item())
            self.log("loss", loss)
            return loss

        def validation_step(self, batch: Any, at: int) -> None:
            self.losses.append(self.net(**batch)["loss"].item())

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), 1e-2)

    net, rows = started()
    trained.net = net
    module = Module(net)
    callbacks = [] if budget is None else [MemfitCallback(budget, **QUICK)]
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=3, logger=Log(), log_every_n_steps=1, callbacks=callbacks,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
        accumulate_grad_batches=2, gradient_clip_val=1.0, **more,
    )  # fmt: skip
    loader = torch.utils.data.DataLoader(rows, 256)
    trainer.fit(module, loader, torch.utils.data.DataLoader(Rows(256), 256))
    for callback in callbacks[:1]:
        assert callback.loop.steps == 18
        assert callback.loop.planned_steps >= 3
    return module.losses, left(net, trainer.optimizers[0])


@pytest.mark.parametrize("name", NAMES)
def test_lightning_with_accumulation_validation_and_checkpoints(name, tmp_path):
    logged: list[Any] = []
    expected, got = within_and_without(lambda budget: trained(name, tmp_path / str(budget), budget, logged))
    assert got == expected
    check_metrics(logged)
    assert list((tmp_path).rglob("*.ckpt"))


def test_an_error_in_lightning_leaves_the_model_usable(tmp_path):
    with pytest.raises(ZeroDivisionError):
        trained(NAMES[0], tmp_path, 1 << 34, [], fails=True)
    check_usable(trained.net)


@pytest.mark.parametrize("sanity", [0, 2])
def test_too_small_a_budget_is_told_by_lightning(tmp_path, sanity):
    started()
    with pytest.raises(memfit.BudgetError) as told:
        trained(NAMES[0], tmp_path, live_bytes(CPU) + 700_000, [], num_sanity_val_steps=sanity)
    assert told.value.hint and told.value.least_budget_bytes > told.value.budget_bytes
    check_usable(trained.net)
