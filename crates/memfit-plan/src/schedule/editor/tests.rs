//! What is kept up to date against what is counted anew, and against the program itself.

use memfit_ir::{Bytes, Codec, Device, Form, InPlace, Link, Nanos, OpId, Store, Tier};
use memfit_sim::simulate;
use memfit_testkit::{Layered, layered};

use super::*;
use crate::Context;
use crate::problem::signed;
use crate::schedule::transfers::program;

fn link(random: &mut Random) -> Link {
    let rate = [1e9, 3e9, 12e9];
    let (out, into) = (rate[random.below(3)], rate[random.below(3)]);
    Link {
        out_bandwidth: out,
        in_bandwidth: into,
        duplex_cap: [f64::INFINITY, out.max(into) * 1.25][random.below(2)],
        latency: Nanos([0, 7, 40][random.below(3)]),
        asynchronous: random.below(4) > 0,
    }
}

fn device(random: &mut Random) -> Device {
    Device {
        name: "test".into(),
        memory: Bytes(1 << 40),
        align: Bytes(8),
        flops: Vec::new(),
        bandwidth: 1e12,
        efficiency: (1.0, 1.0),
        launch: Nanos(10),
        copy: None,
        codecs: vec![(Codec::Zvc, 5e9, 9e9)],
        link: Some(link(random)),
        host_memory: Bytes([1 << 40, 4096][random.below(2)]),
        disk: Some(Store { capacity: Bytes(1 << 40), link: link(random) }),
    }
}

/// Calls `each` after each of many random changes that leave a schedule.
fn changed(seeds: u64, mut each: impl FnMut(u64, &mut Editor<'_, '_>, &Device, i64)) {
    for seed in 0..seeds {
        let mut random = Random::new(seed);
        let device = device(&mut random);
        let context = Context::new(&device);
        // Of several blocks, or small and with all that a graph may have.
        let graph = match seed % 4 {
            0 => layered(Layered { ops: 150, edges: 300, layers: 40, skips: 6, unit: 64, sparse: 2 }, seed),
            _ => memfit_testkit::graph(seed),
        };
        let order: Vec<OpId> = graph.op_ids().collect();
        let task = Task::new(&graph, &order, InPlace::May, true, &context);
        let plain = RunList::plain(&task);
        let limit = signed(plain.cost(&task).map_or(Bytes::ZERO, |cost| Bytes(cost.peak.0 / 2)));
        let editor = Editor::with_away(&task, &plain, limit, (&[], Some(&device)));
        let Some(mut editor) = editor else { continue };
        let again: Vec<NodeId> =
            (0..task.nodes()).filter(|&n| task.recomputable[n]).map(NodeId::at).collect();
        let moved: Vec<ValueId> = task.value_ids().filter(|&value| task.may_move(value)).collect();
        for _ in 0..if seed % 4 == 0 { 200 } else { 60 } {
            editor.keep();
            let before = (editor.profile.mem().to_vec(), editor.over(), editor.told(), editor.schedule());
            let mut right = true;
            for _ in 0..=random.below(3) {
                right = right && step(&mut editor, (&again, &moved), &mut random);
                if right && random.below(2) == 0 {
                    editor.told();
                }
            }
            if !right || random.below(3) == 0 {
                // Some of it first.
                editor.take_back(random.below(editor.edits() + 1));
                editor.take_back(0);
                let now = (editor.profile.mem().to_vec(), editor.over(), editor.told(), editor.schedule());
                assert_eq!(before, now, "seed {seed}");
            }
            each(seed, &mut editor, &device, limit);
        }
    }
}

/// Inserts or removes a run, or sends a value away or keeps one, at random; whether every read still finds its value.
fn step(editor: &mut Editor<'_, '_>, (again, moved): (&[NodeId], &[ValueId]), random: &mut Random) -> bool {
    match random.below(9) {
        0 if !editor.runs.extra().is_empty() => {
            let run = editor.any_later_run(random);
            run.is_none_or(|run| editor.remove(run))
        }
        1..6 if !moved.is_empty() => {
            let value = moved[random.below(moved.len())];
            let form =
                [Form::Tier(Tier::Host), Form::Tier(Tier::Disk), Form::Encoded(Codec::Zvc)][random.below(3)];
            let events = editor.events(value);
            if events.len() < 2 {
                return true;
            }
            let at = random.below(events.len() - 1);
            let (before, after) = (events[at], events[at + 1]);
            let (from, to) = (editor.runs.position(before), editor.runs.position(after));
            if editor.is_away_from(before, value) || editor.defines(after, value) {
                return true;
            }
            let firsts: Vec<usize> =
                (from..=to).filter(|&at| !editor.runs.is_extra(editor.runs.at(at))).collect();
            let one = firsts.get(random.below(firsts.len())).copied();
            let other = firsts.get(random.below(firsts.len())).copied();
            let Some((gone, back)) = one.zip(other).filter(|(gone, back)| *back > gone + 1) else {
                return true;
            };
            let node = |at: usize| editor.runs.node(editor.runs.at(at));
            editor.send(Away { value, form, gone: node(gone), back: node(back) })
        }
        6 => editor.any_away(random).is_none_or(|place| editor.recall(place)),
        _ => {
            let Some(&node) = again.get(random.below(again.len())) else { return true };
            let from = editor.runs.position(RunId::first(node)) + 1;
            let position = from + random.below(editor.runs.len() - from);
            !editor.in_time(node, position) || editor.insert(node, position).1
        }
    }
}

/// All that is away.
fn away(editor: &Editor<'_, '_>) -> Vec<Away> {
    editor.absences.places().filter_map(|place| editor.away(place)).collect()
}

/// What is kept up to date is what counting anew gives: the profile, and the clock, which is exact.
#[test]
fn what_is_kept_up_to_date_matches_a_new_one() {
    let (mut changes, mut most) = (0, 0);
    changed(300, |seed, editor, device, limit| {
        let positions = 0..editor.runs.len();
        assert!(positions.into_iter().all(|at| editor.runs.position(editor.runs.at(at)) == at));
        let away = away(editor);
        let again = Editor::with_away(editor.task, &editor.runs.schedule(), limit, (&away, Some(device)));
        let Some(mut again) = again else { panic!("seed {seed}: no schedule after a change that was right") };
        assert_eq!((editor.profile.mem(), editor.over()), (again.profile.mem(), again.over()), "seed {seed}");
        assert_eq!(editor.told(), again.told(), "seed {seed}");
        (changes, most) = (changes + 1, most.max(away.len()));
    });
    assert!(changes > 1000 && most > 12, "{changes} {most}");
}

/// What the clock says is what the simulator says of the program; the program's live bytes are at most those of the profile.
#[test]
fn what_is_kept_up_to_date_is_what_the_program_takes() {
    let (mut programs, mut stores) = (0, 0);
    changed(300, |seed, editor, device, limit| {
        let (runs, leaves) = editor.schedule();
        let Some(program) = program(editor.task, &runs, &leaves, &[]) else {
            panic!("seed {seed}: no program")
        };
        let timeline = simulate(editor.task.graph, &program, None, device);
        let (told, time) = (editor.told(), timeline.time.0);
        // Of snapshots the clock knows what decoding takes, not what encoding does.
        if editor.task.snapshots == 0 {
            let more = told.time.abs_diff(time);
            assert!(more <= 2 + time / 1_000_000, "seed {seed}: {} for {time}: {leaves:?}", told.time);
        }
        let fits = Tier::ALL
            .iter()
            .all(|&(tier, _)| timeline.tier_peaks[tier.index()] <= device.limits().tier(tier));
        assert!(fits || told.over > 0, "seed {seed}: the copies do not fit");
        let most = editor.profile.mem().iter().max().map_or(0, |most| most + limit) + editor.task.constant;
        let peak = crate::liveness::Profile::of(&program, device.align).peak().0;
        assert!(
            signed(peak) <= most.max(editor.task.constant + editor.task.sources),
            "seed {seed}: {peak} for {most}"
        );
        (programs, stores) = (programs + 1, stores + leaves.len());
    });
    assert!(programs > 1000 && stores > 1000, "{programs} {stores}");
}
