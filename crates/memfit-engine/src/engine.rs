//! The engine: what a host calls.

use std::collections::BTreeMap;

use memfit_ir::{Bytes, Effect, Role, ValueId};
use rustc_hash::FxHashMap;

use crate::alloc::{self, Allocator};
use crate::call::{Call, Output, TensorId};
use crate::classes::Class;
use crate::copies::Stores;
use crate::evict::{self, Evictor, Walk};
use crate::fault::Fault;
use crate::guide::{Carried, Guide};
use crate::host::{Block, Host, HostError};
use crate::ids::StorageId;
use crate::log::Log;
use crate::released::Past;
use crate::scratch::Scratch;
use crate::settings::Pace;
pub use crate::settings::{Settings, Stats, Storing};
use crate::state::{Record, State};
use crate::table::next_index;

/// The online runtime over a host.
pub struct Engine<'a, H: Host> {
    /// The host.
    pub host: H,
    pub(crate) state: State,
    pub(crate) evictor: Box<dyn Evictor + 'a>,
    pub(crate) allocator: Box<dyn Allocator>,
    pub(crate) settings: Settings,
    pub(crate) stats: Stats,
    pub(crate) kinds: Vec<String>,
    known_kinds: FxHashMap<String, u32>,
    pub(crate) pins: BTreeMap<u32, u32>,
    pub(crate) scratch: Scratch,
    pub(crate) log: Option<Log>,
    /// Whether what ops make is looked at while they are recorded, if there are codecs: not where a plan does for the step.
    pub(crate) looks: bool,
    /// Storages that the last op made, each with its value in the log, whose bytes have not been looked at.
    pub(crate) unweighed: Vec<(u32, ValueId)>,
    pub(crate) guide: Option<Guide>,
    /// Why the plan that was followed last was left.
    pub(crate) left: Option<String>,
    /// Whether steps of the guide are being done, which is not in its place then.
    pub(crate) leading: bool,
    /// Plans that were begun.
    pub(crate) followed: u32,
    /// Offsets that the plan has for the outputs and the workspace of the next run.
    pub(crate) preferred: Vec<u64>,
    /// Storages that can't be computed again since their producers were last looked at.
    pub(crate) fixed: Vec<u32>,
    /// Released storages that wait to be banished.
    pub(crate) waiting: Vec<u32>,
    /// What the program has given up.
    pub(crate) past: Past,
    /// Storages of which there is less than their values, and some that were so.
    pub(crate) lessened: Vec<u32>,
    /// Copies of storages elsewhere, and why the last that was lost was.
    pub(crate) stores: Stores,
    pub(crate) lost: Option<HostError>,
    /// What the last step has made of its sources.
    pub(crate) carried: Option<Carried>,
    /// Whether a plan has had storages at home encoded.
    pub(crate) encodes_homes: bool,
    /// How much recomputation is borne without a plan, if that is bounded.
    pub(crate) pace: Option<Pace>,
    /// For what computing something again would take.
    pub(crate) walk: Walk,
}

impl<'a, H: Host> Engine<'a, H> {
    /// An engine with nothing in it.
    ///
    /// # Errors
    ///
    /// If the settings name a policy or an allocator that does not exist.
    pub fn new(host: H, settings: Settings) -> Result<Engine<'a, H>, Fault> {
        let evictor = evict::by_name(&settings.evictor)
            .ok_or_else(|| Fault::BadCall(format!("there is no evictor `{}`", settings.evictor)))?;
        let evictor = (evictor.make)(&settings.options);
        Engine::with_evictor(host, settings, evictor)
    }

    /// An engine with a policy of its caller's; `settings.evictor` is not looked at.
    ///
    /// # Errors
    ///
    /// If the settings name an allocator that does not exist.
    pub fn with_evictor(
        host: H,
        settings: Settings,
        evictor: Box<dyn Evictor + 'a>,
    ) -> Result<Engine<'a, H>, Fault> {
        let unknown = |what: &str, name: &str| Fault::BadCall(format!("there is no {what} `{name}`"));
        let allocator =
            alloc::by_name(&settings.allocator).ok_or_else(|| unknown("allocator", &settings.allocator))?;
        let mut engine = Engine {
            host,
            state: State::default(),
            evictor,
            allocator: (allocator.make)(settings.budget, settings.align),
            log: None,
            looks: true,
            unweighed: Vec::new(),
            guide: None,
            left: None,
            leading: false,
            followed: 0,
            preferred: Vec::new(),
            past: Past::new(settings.budget),
            settings,
            stats: Stats::default(),
            kinds: Vec::new(),
            known_kinds: FxHashMap::default(),
            pins: BTreeMap::new(),
            scratch: Scratch::default(),
            fixed: Vec::new(),
            waiting: Vec::new(),
            lessened: Vec::new(),
            stores: Stores::default(),
            lost: None,
            carried: None,
            encodes_homes: false,
            pace: None,
            walk: Walk::capped(evict::MOST),
        };
        engine.state.now = engine.host.clock().0;
        let nearest = engine.settings.tiers.iter().flatten().next();
        engine.state.link =
            nearest.filter(|_| engine.settings.storing != Storing::Never).map(|store| store.link);
        if engine.settings.log {
            engine.begin_step()?;
        }
        Ok(engine)
    }

    /// What has been done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats { evaluations: self.evictor.evaluations(), ..self.stats }
    }

    /// Says what `tensor` is to the steps that begin from now on.
    ///
    /// # Errors
    ///
    /// [`Fault::Unknown`].
    pub fn set_role(&mut self, tensor: TensorId, role: Role) -> Result<(), Fault> {
        self.known(tensor)?;
        let storage = self.state.storage_of(tensor.0);
        self.state.storages[storage as usize].role = role;
        Ok(())
    }

    /// Brings in a tensor that no op makes: it stays until it's deleted and nothing needs it.
    ///
    /// # Errors
    ///
    /// [`Fault::NoRoom`].
    pub fn put(&mut self, size: Bytes, role: Role) -> Result<TensorId, Fault> {
        self.put_at(size, role, None)
    }

    /// As [`Engine::put`], at `offset` if there is room.
    pub(crate) fn put_at(&mut self, size: Bytes, role: Role, at: Option<Bytes>) -> Result<TensorId, Fault> {
        self.lead_to(None, None)?;
        self.preferred.clear();
        let offset = self.room_near(at, size.0)?;
        let storage = self.state.new_storage(size);
        let tensor = self.state.new_tensor(storage, None);
        self.evictor.created(&self.state, storage);
        let block = Block { storage: Some(StorageId(storage)), offset: Bytes(offset), size };
        self.host.allocate(block);
        self.state.arrive(storage, offset);
        let now = self.state.now;
        let this = &mut self.state.storages[storage as usize];
        (this.last_access, this.role) = (now, role);
        self.state.tensors[tensor as usize].defined = true;
        self.evictor.computed(&self.state, storage);
        if let Some(log) = &mut self.log {
            log.put(&mut self.state, tensor, role);
        }
        self.follow_put(tensor);
        Ok(TensorId(tensor))
    }

    /// Runs an op. Inputs that are gone are computed again, and others evicted for its outputs and workspace. The
    /// outputs are appended to `made`, each held once.
    ///
    /// # Errors
    ///
    /// Any [`Fault`]; then nothing is made.
    pub fn apply(&mut self, call: &Call<'_>, made: &mut Vec<TensorId>) -> Result<(), Fault> {
        self.check(call)?;
        self.state.call = self.stats.calls;
        let record = self.enlist(call);
        let target = self.state.record(record).made().next();
        let ran = self.lead_to(Some(call), Some(record));
        let ran = ran.and_then(|()| self.overwrite(record)).and_then(|()| self.materialise(record, target));
        self.preferred.clear();
        if let Err(fault) = ran {
            self.undo_call(record);
            return Err(fault);
        }
        self.stats.calls += 1;
        let now = self.state.now;
        for at in 0..call.outputs.len() {
            let Some(tensor) = self.state.record(record).writes[at].get() else { continue };
            let storage = self.state.storage_of(tensor);
            self.state.storages[storage as usize].last_access = now;
            made.push(TensorId(tensor));
        }
        if self.settings.forget && !self.makes_evictable(record) {
            self.detach(record);
        }
        self.forget_producers();
        Ok(())
    }

    fn check(&mut self, call: &Call<'_>) -> Result<(), Fault> {
        for &tensor in call.reads {
            self.known(tensor)?;
        }
        // Storages that are overwritten, sorted.
        let mut over = std::mem::take(&mut self.scratch.queue);
        over.clear();
        over.extend(call.outputs.iter().filter_map(|output| match *output {
            Output::InPlace(of) => call.reads.get(of).map(|read| self.state.storage_of(read.0)),
            _ => None,
        }));
        over.sort_unstable();
        let twice = over.windows(2).any(|pair| pair[0] == pair[1]);
        let checked = self.check_outputs(call, &over, twice);
        over.clear();
        self.scratch.queue = over;
        checked
    }

    fn check_outputs(&self, call: &Call<'_>, over: &[u32], twice: bool) -> Result<(), Fault> {
        if twice {
            return Err(Fault::BadCall(format!("`{}` overwrites one storage twice", call.kind)));
        }
        for (at, output) in call.outputs.iter().enumerate() {
            let (Output::View(of) | Output::InPlace(of) | Output::Takes(_, of)) = *output else { continue };
            let Some(&read) = call.reads.get(of) else {
                let message = format!(
                    "output {at} of `{}` is made of argument {of} of {}",
                    call.kind,
                    call.reads.len()
                );
                return Err(Fault::BadCall(message));
            };
            let storage = self.state.storage_of(read.0);
            if matches!(output, Output::View(_)) && over.binary_search(&storage).is_ok() {
                return Err(Fault::BadCall(format!(
                    "`{}` overwrites a storage that it makes a view of",
                    call.kind
                )));
            }
        }
        Ok(())
    }

    /// Whether the op of `record` may run again.
    fn repeatable(&self, effect: Effect, record: u32) -> bool {
        match effect {
            Effect::Pure => true,
            Effect::Seeded => self.state.generators.contains_key(&record),
            Effect::Once | Effect::Collective => false,
        }
    }

    /// Enters a call and what it makes into the tables.
    fn enlist(&mut self, call: &Call<'_>) -> u32 {
        let class = Class {
            kind: self.kind(call.kind),
            effect: call.effect,
            outputs: call.outputs.into(),
            needs: call.needs.into(),
        };
        let record = self.state.new_record();
        if call.effect == Effect::Seeded {
            self.state.generators.extend(self.host.generator().map(|state| (record, state)));
        }
        self.state.records[record as usize] = Record {
            class: self.state.classes.take(&class),
            reads: call.reads.iter().map(|tensor| tensor.0).collect(),
            time: call.time.0,
            workspace: call.workspace.0,
            alive: true,
            ..Record::default()
        };
        let state = &self.state;
        let overwrites_source = |output: &Output| match *output {
            Output::InPlace(of) => !state.storage(state.storage_of(call.reads[of].0)).evictable,
            _ => false,
        };
        let repeatable = self.repeatable(call.effect, record) && !call.outputs.iter().any(overwrites_source);
        // What stays is nobody's child.
        self.state.records[record as usize].derives = repeatable;
        for &read in call.reads {
            self.state.tensors[read.index()].users += 1;
        }
        for (at, output) in call.outputs.iter().enumerate() {
            let storage = match *output {
                Output::Fresh(size) | Output::Takes(size, _) => self.state.new_storage(size),
                Output::InPlace(of) => {
                    let old = self.state.storage_of(call.reads[of].0);
                    let (size, role) = (self.state.storage(old).size, self.state.storage(old).role);
                    let fixed = self.state.storage(old).fixed;
                    let new = self.state.new_storage(Bytes(size));
                    let this = &mut self.state.storages[new as usize];
                    (this.role, this.fixed) = (role, fixed);
                    new
                }
                Output::View(of) => self.state.storage_of(call.reads[of].0),
            };
            let view = matches!(output, Output::View(_));
            let tensor = self.state.new_tensor(storage, Some(record));
            self.state.records[record as usize].writes.push(tensor.into());
            let counted = view
                && self.state.record(record).writes[..at]
                    .iter()
                    .filter_map(|other| other.get())
                    .any(|other| self.state.storage_of(other) == storage);
            let this = &mut self.state.storages[storage as usize];
            if !counted {
                this.cost += call.time.0;
            }
            if !view {
                this.evictable = repeatable;
            } else if !repeatable && this.evictable {
                this.evictable = false;
                self.state.leave_pool(storage);
            }
            if repeatable {
                self.state.link(tensor);
            }
            if !view {
                self.evictor.created(&self.state, storage);
            }
        }
        record
    }

    fn kind(&mut self, name: &str) -> u32 {
        if let Some(&kind) = self.known_kinds.get(name) {
            return kind;
        }
        let kind = next_index(self.kinds.len());
        self.kinds.push(name.to_owned());
        self.known_kinds.insert(name.to_owned(), kind);
        kind
    }

    pub(crate) fn known(&self, tensor: TensorId) -> Result<(), Fault> {
        match self.state.tensors.get(tensor.index()) {
            Some(this) if this.alive && this.held > 0 => Ok(()),
            _ => Err(Fault::Unknown(tensor)),
        }
    }

    /// Holds `tensor` once more.
    ///
    /// # Errors
    ///
    /// [`Fault::Unknown`].
    pub fn share(&mut self, tensor: TensorId) -> Result<(), Fault> {
        self.known(tensor)?;
        let this = &mut self.state.tensors[tensor.index()];
        this.held += 1;
        let storage = this.storage;
        self.state.hold(storage);
        if let Some(log) = &mut self.log {
            log.share(&self.state, tensor.0);
        }
        Ok(())
    }

    /// Gives up one reference to `tensor`.
    ///
    /// # Errors
    ///
    /// [`Fault::Unknown`].
    pub fn del(&mut self, tensor: TensorId) -> Result<(), Fault> {
        self.known(tensor)?;
        if let Some(log) = &mut self.log {
            log.release(&self.state, tensor.0);
        }
        let this = &mut self.state.tensors[tensor.index()];
        this.held -= 1;
        let (held, storage) = (this.held, this.storage);
        if self.state.let_go(storage) {
            self.released(storage);
            self.passed(storage);
        }
        if held == 0 && self.settings.forget {
            self.collect(tensor.0);
        }
        self.forget_producers();
        Ok(())
    }

    /// Makes sure that `tensor` is in memory and says where, for the host to read. Valid until the next call.
    ///
    /// # Errors
    ///
    /// Any [`Fault`].
    pub fn get(&mut self, tensor: TensorId) -> Result<Block, Fault> {
        self.restore(tensor)?;
        let storage = self.state.storage_of(tensor.0);
        self.state.storages[storage as usize].last_access = self.state.now;
        Ok(self.block(storage))
    }

    /// Makes sure that `tensor` is in memory, without counting that as a use.
    ///
    /// # Errors
    ///
    /// Any [`Fault`].
    pub fn restore(&mut self, tensor: TensorId) -> Result<(), Fault> {
        self.known(tensor)?;
        self.define(tensor.0)
    }

    pub(crate) fn define(&mut self, tensor: u32) -> Result<(), Fault> {
        if !self.lessened.is_empty() {
            self.make_whole(self.state.storage_of(tensor));
        }
        let this = self.state.tensor(tensor);
        if this.defined {
            return Ok(());
        }
        self.follow_to_end()?;
        let this = self.state.tensor(tensor);
        if this.defined {
            return Ok(());
        }
        let record = this.record.get();
        if self.stores.has(this.storage) && self.bring_back(tensor)? {
            return Ok(());
        }
        let record = record.ok_or(Fault::Lost(TensorId(tensor)))?;
        self.materialise(record, Some(tensor))
    }

    /// Whether `tensor` is in memory.
    #[must_use]
    pub fn is_resident(&self, tensor: TensorId) -> bool {
        self.state.tensors.get(tensor.index()).is_some_and(|tensor| tensor.alive && tensor.defined)
    }

    /// From now on there is room for everything, without addresses: the end of a budget.
    pub fn lift_budget(&mut self) {
        let all = Bytes(u64::MAX / 4);
        (self.settings.budget, self.pace) = (all, None);
        self.allocator = alloc::unlimited(all);
    }

    /// What it was made with.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Where `tensor` is, or was last.
    #[must_use]
    pub fn block_of(&self, tensor: TensorId) -> Option<Block> {
        let this = self.state.tensors.get(tensor.index()).filter(|tensor| tensor.alive)?;
        Some(self.block(this.storage))
    }

    /// The storage that `tensor` is, or is a view of.
    #[must_use]
    pub fn storage_of(&self, tensor: TensorId) -> Option<StorageId> {
        let this = self.state.tensors.get(tensor.index()).filter(|tensor| tensor.alive)?;
        Some(StorageId(this.storage))
    }

    /// Whether `tensor` can be computed again.
    #[must_use]
    pub fn is_evictable(&self, tensor: TensorId) -> bool {
        let this = self.state.tensors.get(tensor.index()).filter(|tensor| tensor.alive);
        this.is_some_and(|tensor| self.state.storage(tensor.storage).evictable)
    }

    pub(crate) fn block(&self, storage: u32) -> Block {
        let this = self.state.storage(storage);
        Block { storage: Some(StorageId(storage)), offset: Bytes(this.offset), size: Bytes(this.size) }
    }
}
