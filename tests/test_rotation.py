"""The public rotation that spreads updates over blocks: orthonormal, undone by the server, and nothing told by it."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import linalg

import airfl
from airfl.air import EquivalentUplink, SignalUplink
from airfl.air import rotation as rotation_module
from airfl.air.rotation import Rotation, pieces, signs, spread
from airfl.devices import UpdateBlock
from airfl.errors import InputError
from airfl.rounds import Sending, arrange, book
from airfl.schemes import SCHEMES
from airfl.transceiver import open_radio

DIM = 650
#: Eight blocks of frequency, which differ: few antennas, and power that is scarce.
BLOCKS = {"channel.coherence_hz": 2.5e6, "channel.power_w": 1e-9, "scheme.combiner": "auto", "channel.rotation": True}


@pytest.fixture
def wide(tiny):
    return tiny.replace(BLOCKS)


def schedule_of(config, trials=(0, 1), name="airfl-dp"):
    return arrange(config, SCHEMES[name], open_radio(config, trials), DIM)


def block_of(sent):
    """Updates [trials, K, d] as an engine hands them on."""
    trial, slot = np.divmod(np.arange(sent.shape[0] * sent.shape[1]), sent.shape[1])
    return UpdateBlock(torch.from_numpy(trial), torch.from_numpy(slot), sent.reshape(-1, DIM), torch.zeros(len(trial)))


def dense(dim, trial=0, t=0, seed=1):
    """R by another way: scipy's Hadamard matrices, block by block."""
    parts = [linalg.hadamard(size) / math.sqrt(size) for _, size, count in pieces(dim) for _ in range(count)]
    return torch.from_numpy(linalg.block_diag(*parts) * signs(seed, trial, t, dim))


@pytest.mark.parametrize("dim", [1, 2, 3, 64, 650])
@pytest.mark.parametrize("chunk", [16, 32, 4096])
def test_it_is_the_dense_rotation_and_comes_back(dim, chunk, monkeypatch):
    monkeypatch.setattr(rotation_module, "CHUNK", chunk)
    rotation, rows = Rotation(1, (0, 3), 2), torch.tensor([1, 0, 1])
    x = torch.randn(3, dim, dtype=torch.float64)
    turned = rotation.forth(x, rows)
    for row, trial in enumerate((3, 0, 3)):
        expected = dense(dim, trial, 2)
        assert torch.allclose(expected @ expected.mT, torch.eye(dim, dtype=torch.float64), atol=1e-12)
        assert torch.allclose(turned[row], expected @ x[row], rtol=0, atol=1e-12)
    assert torch.allclose(rotation.back(turned, rows), x, rtol=0, atol=1e-14 * dim**0.5 + 4e-15)
    assert torch.allclose(turned.norm(dim=1), x.norm(dim=1), rtol=1e-14)
    assert sum(size * count for _, size, count in pieces(dim)) == dim
    assert all(size & (size - 1) == 0 for _, size, _ in pieces(dim))


def test_a_chunk_of_the_right_size_is_undone_to_the_bit():
    """Whole numbers in chunks of a power of four: sums and the root are exact."""
    x = torch.randint(-1000, 1000, (2, 8192), dtype=torch.float64)
    assert torch.equal(spread(spread(x)), x)


def test_draws_differ_between_rounds_and_trials_and_nothing_else():
    x = torch.randn(2, DIM, dtype=torch.float64)
    rows = torch.arange(2)
    one = Rotation(0, (0, 1), 0).forth(x, rows)
    alone = Rotation(0, (1,), 0).forth(x[1:], torch.tensor([0]))
    assert torch.allclose(one[1:], alone, rtol=0, atol=1e-12)  # products round as the batch is wide
    for other in (Rotation(0, (0, 1), 1), Rotation(0, (2, 3), 0), Rotation(1, (0, 1), 0)):
        assert not torch.allclose(other.forth(x, rows), one)
    repeated = Rotation(0, (0, 1), 0).repeated(2).forth(x, torch.tensor([1, 3]))
    assert torch.allclose(repeated, one, rtol=0, atol=1e-12)


@pytest.mark.parametrize("phase", [0.0, 0.3])
@pytest.mark.parametrize("symbols", ["real", "complex"])
def test_both_uplinks_agree_with_dense_matrices(wide, symbols, phase):
    """The sum to rounding, also where gains differ between blocks; the noise of every block, as it is sent."""
    config = wide.replace({"channel.symbols": symbols, "channel.phase_error_rad": phase})
    setting = schedule_of(config).setting(1)
    blocks = setting.blocks
    sent = torch.randn(2, 9, DIM, generator=torch.Generator().manual_seed(1)) / math.sqrt(DIM)
    where = blocks.grid.block_of(DIM)
    expected = sent.sum(dim=1).double()
    if phase > 0:
        for trial in range(2):
            turn = dense(DIM, trial, 1)
            gains = blocks.gains[trial][:, where]
            mine = sent[trial].double() @ turn.mT
            heard = (gains.real * mine).sum(dim=0)
            if symbols == "complex":
                pairs = torch.view_as_complex(mine.reshape(9, -1, 2)) * blocks.gains[trial][:, where[::2]]
                heard = torch.view_as_real(pairs.sum(dim=0)).flatten()
            expected[trial] = turn.mT @ heard
        assert (expected - sent.sum(dim=1)).norm() > 0.01
    for uplink in (EquivalentUplink, SignalUplink):
        quiet = uplink(0, (0, 1)).receive([block_of(sent)], DIM, setting.silenced()).double()
        assert torch.allclose(quiet, expected, atol=2e-5)
        draws = []
        for seed in range(30):
            noise = uplink(seed, (0, 1)).receive([block_of(sent)], DIM, setting).double() - quiet
            draws.append(torch.stack([dense(DIM, trial, 1) @ noise[trial] for trial in range(2)]))
            assert torch.allclose(
                setting.whitened(noise) * blocks.noise_var[:, where].sqrt(),
                draws[-1],
                atol=1e-9 * float(noise.abs().max()),
            )
        for number in range(8):
            variance = torch.stack(draws, dim=1)[:, :, where == number].var(dim=(1, 2))
            count = 30 * int((where == number).sum())
            assert (variance / blocks.noise_var[:, number] - 1).abs().max() < 5 * math.sqrt(2 / count)


def test_the_noise_has_the_covariance_of_rotated_blocks(wide):
    """Rᵀ diag(v) R, with one block far noisier: off the diagonal too, and its diagonal is what is planned."""
    setting = schedule_of(wide, (0,)).setting(0)
    apart = torch.ones(1, 8, dtype=torch.float64)
    apart[0, 3] = 50.0
    setting = replace(setting, noise_var=apart.mean(dim=1), blocks=replace(setting.blocks, noise_var=apart))
    nothing = block_of(torch.zeros(1, 9, DIM))
    draws = torch.cat([EquivalentUplink(seed, (0,)).receive([nothing], DIM, setting) for seed in range(3000)]).double()
    turn = dense(DIM)
    law = turn.mT @ torch.diag(apart[0, setting.blocks.grid.block_of(DIM)]) @ turn
    seen = draws.mT @ draws / len(draws)
    spreads = ((law.diagonal()[:, None] * law.diagonal() + law.square()) / len(draws)).sqrt()
    scores = (seen - law) / spreads
    assert scores.abs().max() < 6.5
    assert float(scores.square().mean()) == pytest.approx(1.0, abs=0.05)
    assert setting.planned_var(DIM)[0].tolist() == pytest.approx(law.diagonal().tolist())


def sent_by(schedule, setting, sent):
    sending = Sending(schedule.scheme.encoder, setting, schedule.clip_norm, None, schedule.public(setting))
    return sending.encode(block_of(sent)).updates.reshape(sent.shape), sending.watch.kept


def test_an_update_in_one_block_is_not_scaled_down_any_more(wide):
    kept = {}
    for rotation in (True, False):
        config = wide.replace({"channel.rotation": rotation, "channel.distance": "common", "system.num_antennas": 3})
        schedule = schedule_of(config, name="airfl-mimo")
        setting = schedule.setting(0)
        where, worst = setting.blocks.grid.block_of(DIM), setting.blocks.spent.argmax(dim=2)
        sent = (
            torch.randn(2, 9, DIM, generator=torch.Generator().manual_seed(0)) * (where == worst.unsqueeze(-1)) * 50.0
        )
        kept[rotation] = sent_by(schedule, setting, sent)[1]
    assert kept[False].max() < 0.97
    assert kept[True].min() > 0.99


@pytest.mark.parametrize("symbols", ["real", "complex"])
def test_power_and_length_are_kept_by_whoever_knows_the_signs(wide, symbols):
    """Updates that the rotation turns into one block, or one symbol, beside ordinary ones."""
    config = wide.replace({"channel.symbols": symbols, "privacy.epsilon": 1e6, "system.num_antennas": 3})
    schedule = schedule_of(config)
    setting = schedule.setting(0)
    blocks = setting.blocks
    where, worst = blocks.grid.block_of(DIM), blocks.spent.argmax(dim=2)
    turns = [dense(DIM, trial) for trial in range(2)]
    mine, generator = where == worst.unsqueeze(-1), torch.Generator().manual_seed(0)
    for mask in (mine, mine & (mine.cumsum(dim=-1) == 1), where >= 0):
        made = torch.randn(2, 9, DIM, dtype=torch.float64, generator=generator) * mask
        sent = torch.stack([part @ turn for part, turn in zip(made, turns, strict=True)]).float() * 50.0
        encoded, kept = sent_by(schedule, setting, sent)
        assert (torch.linalg.vector_norm(encoded.double(), dim=2) <= 1.0 + 1e-6).all()
        for trial in range(2):
            energy = blocks.grid.energies(encoded[trial].double() @ turns[trial].mT)
            power = (energy * blocks.spent[trial]).sum(dim=1) / blocks.grid.symbols
            assert (power <= config.channel.power_w * (1 + 1e-6)).all()
        if mask.ndim == 3:
            assert kept.min() < 0.98  # signs are public: what is made for them is scaled down as before


def test_what_is_booked_does_not_change(wide):
    plain, turned = (schedule_of(wide.replace({"channel.rotation": on})) for on in (False, True))
    for t in range(4):
        first, second = (book(one, one.setting(t), lambda row: None) for one in (plain, turned))
        assert [entry.event for entry in first] == [entry.event for entry in second]


def test_a_run_with_each_uplink_learns_alike(wide):
    config = wide.replace({"scheme.names": ["airfl-dp"], "privacy.epsilon": 1e4})
    runs = [airfl.run(config.replace({"scheme.uplink": uplink})) for uplink in ("equivalent", "signal")]
    assert runs[0].schemes["airfl-dp"].ledgers == runs[1].schemes["airfl-dp"].ledgers
    assert runs[0].schemes["airfl-dp"].status == runs[1].schemes["airfl-dp"].status == "done"


def test_one_block_has_nowhere_to_spread_to(tiny):
    with pytest.raises(InputError, match="this round has one") as refused:
        schedule_of(tiny.replace({"channel.rotation": True}))
    assert "\n" not in str(refused.value)


def test_an_audit_looks_at_the_noise_as_it_is_sent(call):
    small = [
        *("--set", "learning.dataset=digits", "--set", "learning.model=softmax", "--set", "learning.local_steps=2"),
        *("--set", "system.rounds=2", "--set", "system.num_devices=6", "--set", "system.num_antennas=4"),
        *("--set", "system.trials=1", "--set", "system.participation=1.0", "--set", "scheme.combiner=auto"),
        *("--set", "privacy.epsilon=8", "--set", "channel.coherence_hz=1e6", "--set", "channel.power_w=1e-9"),
        *("--set", "channel.rotation=true", "--scheme", "airfl-mimo", "--repetitions", "100"),
    ]
    code, out, error = call("audit", "paper", *small, "--json")
    assert code == 0, error
    assert json.loads(out.strip().splitlines()[-1])["failed_checks"] == []
