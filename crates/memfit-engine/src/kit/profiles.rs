//! What is known of ops with operands of given shapes: what they make, and what they take beside it.

use std::sync::Arc;

use memfit_ir::Bytes;
use rustc_hash::FxHashMap;

use super::map_bytes;
use crate::host::expected;

/// Shapes of one generation. When there are as many, those are forgotten that were not met since the last time.
const GENERATION: usize = 1 << 13;

/// What an op makes of operands of given shapes, and what it takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpProfile {
    /// Bytes of each storage it makes, in the order of its results; `None` if they depend on the data.
    pub fresh: Option<Arc<[u64]>>,
    /// Scratch bytes.
    pub workspace: u64,
    /// Whether the scratch bytes are only a bound.
    pub guessed: bool,
    /// Ns, as last measured; 0 if that was never done.
    pub time: u64,
    /// Whether its results turned out to have other sizes than was inferred.
    pub corrected: bool,
    /// Times it has run.
    pub runs: u32,
}

impl OpProfile {
    /// That of an op without results.
    #[must_use]
    pub fn nothing() -> OpProfile {
        OpProfile { fresh: Some(Arc::default()), ..OpProfile::default() }
    }

    /// What a run is taken to have taken that was measured to take so many ns: see [`expected`].
    #[must_use]
    pub fn expects(time: u64, measured: u64) -> u64 {
        expected(time, measured.max(1))
    }

    /// It has run: ns as [`OpProfile::expects`] has them, and scratch bytes if they were measured. Where nobody can say what it will
    /// make, they are with those of its results, and stay a bound: the most that was seen.
    pub fn ran(&mut self, time: u64, workspace: Option<u64>) {
        let seen = self.most_seen();
        self.time = time;
        self.runs = self.runs.saturating_add(1);
        let Some(workspace) = workspace else { return };
        if self.fresh.is_none() {
            self.workspace = workspace.max(seen);
        } else {
            (self.workspace, self.guessed) = (workspace, false);
        }
    }

    /// The most bytes, those of results included, that it was seen to take whose results nobody can say beforehand.
    #[must_use]
    pub fn most_seen(&self) -> u64 {
        if self.fresh.is_none() && self.time > 0 { self.workspace } else { 0 }
    }

    /// It was seen to take scratch memory; the most of all times counts.
    pub fn saw_workspace(&mut self, bytes: Bytes) {
        self.workspace = self.workspace.max(bytes.0);
    }

    /// Its results had other sizes. Once a kernel may know better than its description; after that its sizes depend on the
    /// data, and there is room for the most that it was seen to make.
    pub fn correct(&mut self, fresh: Vec<u64>) {
        if self.corrected && self.fresh.is_some() {
            let made = |sizes: &[u64]| sizes.iter().fold(0_u64, |sum, &size| sum.saturating_add(size));
            let most = made(&fresh).max(self.fresh.as_deref().map_or(0, made));
            (self.workspace, self.guessed) = (self.workspace.saturating_add(most), true);
        }
        self.fresh = Some(fresh.into()).filter(|_| !self.corrected);
        self.corrected = true;
    }
}

/// Names a row of [`Profiles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileId(u32);

/// A row for each shape of op that was met lately. A key is what its host tells ops and shapes apart by.
#[derive(Debug, Default)]
pub struct Profiles {
    /// Numbers of the shapes that were met lately, and of those met before that.
    young: FxHashMap<Box<[u64]>, ProfileId>,
    old: FxHashMap<Box<[u64]>, ProfileId>,
    rows: Vec<OpProfile>,
    free: Vec<ProfileId>,
}

impl Profiles {
    /// The row of the shape with `key`, if it is known. It has been met from now on.
    pub fn find(&mut self, key: &[u64]) -> Option<ProfileId> {
        if let Some(&profile) = self.young.get(key) {
            return Some(profile);
        }
        let (key, profile) = self.old.remove_entry(key)?;
        self.enter(key, profile);
        Some(profile)
    }

    /// A row for the shape with `key`, which has none.
    pub fn add(&mut self, key: &[u64], profile: OpProfile) -> ProfileId {
        let number = match self.free.pop() {
            Some(free) => {
                self.rows[free.0 as usize] = profile;
                free
            }
            None => {
                self.rows.push(profile);
                ProfileId(crate::table::next_index(self.rows.len() - 1))
            }
        };
        self.enter(key.into(), number);
        number
    }

    /// Takes over what was learnt elsewhere; what is known here stays, unless it is a guess.
    pub fn learn(&mut self, key: &[u64], profile: OpProfile) {
        match self.young.get(key).or_else(|| self.old.get(key)).copied() {
            Some(known) if self.of(known).guessed => *self.of_mut(known) = profile,
            Some(_) => {}
            None => {
                self.add(key, profile);
            }
        }
    }

    /// What is known.
    #[must_use]
    pub fn of(&self, profile: ProfileId) -> &OpProfile {
        &self.rows[profile.0 as usize]
    }

    /// See [`Profiles::of`].
    pub fn of_mut(&mut self, profile: ProfileId) -> &mut OpProfile {
        &mut self.rows[profile.0 as usize]
    }

    /// How many shapes are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All that is known, with its keys, by number.
    pub fn iter(&self) -> impl Iterator<Item = (&[u64], &OpProfile)> {
        let mut keys: Vec<Option<&[u64]>> = vec![None; self.rows.len()];
        #[allow(clippy::iter_over_hash_type, reason = "each goes to the row of its number")]
        for (key, number) in self.old.iter().chain(&self.young) {
            keys[number.0 as usize] = Some(key);
        }
        keys.into_iter().zip(&self.rows).filter_map(|(key, profile)| Some((key?, profile)))
    }

    /// Bytes of the tables, without keys and lists of sizes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let maps = [&self.young, &self.old].map(|map| map_bytes::<Box<[u64]>, ProfileId>(map.capacity()));
        maps.iter().sum::<usize>() + self.rows.capacity() * size_of::<OpProfile>()
    }

    /// Notes that the shape with `key` has been met.
    fn enter(&mut self, key: Box<[u64]>, number: ProfileId) {
        if self.young.len() >= GENERATION {
            let old = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
            self.free.extend(old.into_values());
        }
        self.young.insert(key, number);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    fn of_workspace(workspace: u64) -> OpProfile {
        OpProfile { workspace, ..OpProfile::default() }
    }

    #[test]
    fn what_was_not_met_for_a_generation_is_forgotten_and_its_row_used_again() {
        let mut profiles = Profiles::default();
        let generation = GENERATION as u64;
        for shape in 0..2 * generation {
            profiles.add(&[1, shape], of_workspace(shape));
            let kept = profiles.find(&[1, 0]).unwrap();
            assert_eq!(profiles.of(kept).workspace, 0, "what is met stays");
        }
        let rows = profiles.rows.len();
        assert!(rows <= 2 * GENERATION && profiles.len() <= rows, "{rows} {}", profiles.len());
        for shape in 0..generation {
            profiles.add(&[2, shape], of_workspace(shape));
        }
        assert!(profiles.find(&[1, 1]).is_none() && profiles.find(&[2, 1]).is_some());
        assert!(profiles.rows.len() < rows + 4 && profiles.len() <= 2 * GENERATION);
        assert!(profiles.bytes() > rows * size_of::<OpProfile>());
    }

    #[test]
    fn what_was_measured_is_not_overwritten_by_what_is_learnt() {
        let mut profiles = Profiles::default();
        assert!(profiles.is_empty());
        let guess = profiles.add(&[1], OpProfile { guessed: true, ..of_workspace(9) });
        let seen = profiles.add(&[2], of_workspace(5));
        for key in 1..4 {
            profiles.learn(&[key], of_workspace(7));
        }
        assert_eq!((profiles.of(guess).workspace, profiles.of(seen).workspace), (7, 5));
        let told: Vec<(&[u64], u64)> =
            profiles.iter().map(|(key, profile)| (key, profile.workspace)).collect();
        assert_eq!(told, [(&[1][..], 7), (&[2], 5), (&[3], 7)]);
    }

    #[test]
    fn a_profile_is_believed_as_far_as_it_was_measured() {
        let mut profile = OpProfile { guessed: true, workspace: 100, ..OpProfile::nothing() };
        profile.ran(OpProfile::expects(profile.time, 80), None);
        assert_eq!((profile.time, profile.workspace, profile.guessed), (80, 100, true));
        // A machine that was busy: a quarter more at the most.
        profile.ran(OpProfile::expects(profile.time, 800), Some(30));
        assert_eq!((profile.time, profile.workspace, profile.guessed), (100, 30, false));
        profile.saw_workspace(Bytes(20));
        profile.saw_workspace(Bytes(40));
        assert_eq!(profile.workspace, 40);
        profile.correct(vec![8]);
        assert_eq!(profile.fresh.as_deref(), Some(&[8][..]));
        profile.correct(vec![16]);
        assert_eq!(profile.fresh, None, "they depend on the data");
        assert_eq!((profile.workspace, profile.guessed), (56, true), "room for what it makes");
        profile.ran(100, Some(30));
        assert_eq!((profile.workspace, profile.most_seen()), (56, 56), "the most that was seen");
        profile.ran(100, Some(90));
        assert_eq!((profile.workspace, profile.guessed), (90, true));
        let mut unknown = OpProfile { guessed: true, ..of_workspace(1000) };
        assert_eq!(unknown.most_seen(), 0);
        unknown.ran(10, Some(300));
        assert_eq!((unknown.workspace, unknown.guessed), (300, true), "what was seen, not what was guessed");
        assert_eq!(OpProfile::nothing().fresh.as_deref(), Some(&[][..]));
    }
}
