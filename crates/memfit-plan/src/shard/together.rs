//! Collective ops about all parameters or gradients of a unit.

use memfit_ir::{Bytes, Dtype, OpSpec, Phase, Role, ValueId, ValueSpec};

use super::Refused;
use super::collective::Collective;
use super::rewrite::Rewriter;

impl Rewriter<'_> {
    /// Gathers all parameters of a unit for the ops of `phase`: into one buffer, a row for each rank, and from there to where they are used. In the backward pass
    /// the buffer of the unit that comes next is gathered ahead. The root's parameters stay from the forward pass on.
    pub(super) fn gather_unit(&mut self, unit: usize, phase: Phase) -> Result<(), Refused> {
        let is_root = self.units.is_root(unit);
        let members = self.units.members(unit).to_vec();
        let shares: Vec<ValueId> = members.iter().map(|&old| self.held(old)).collect();
        let flat = match self.ahead.remove(&unit) {
            // An update since then has made other shares.
            Some((of, flat)) if of == shares => flat,
            _ => self.gather_flat(unit, phase, &shares)?,
        };
        // One value for all: they go together, when the last of them has been used.
        let size: Bytes = members.iter().map(|&old| self.graph.value(old).size).sum();
        let name = self.units.name(unit).to_owned();
        let spec = ValueSpec { name, size, dtype: Dtype::Other, shape: vec![size.0], ..ValueSpec::default() };
        let whole = self.add(members[0], spec)?;
        self.builder.op(OpSpec {
            name: format!("copy_out:{}", self.units.name(unit)),
            kind: "memfit.copy_out".to_owned(),
            module: self.module.clone(),
            phase,
            moved: size + size,
            reads: vec![flat],
            writes: vec![whole],
            ..OpSpec::default()
        })?;
        for share in shares {
            self.gathered.insert((share, phase), whole);
            if is_root && phase == Phase::Forward {
                self.gathered.insert((share, Phase::Backward), whole);
            }
        }
        match phase {
            Phase::Forward if !self.order.contains(&unit) => self.order.push(unit),
            Phase::Backward if !is_root => {
                let at = self.order.iter().position(|&other| other == unit).unwrap_or(0);
                let before = self.order[..at].iter().rev().copied().find(|&other| !self.units.is_root(other));
                if let Some(next) = before.filter(|next| !self.ahead.contains_key(next)) {
                    let shares: Vec<ValueId> =
                        self.units.members(next).iter().map(|&old| self.held(old)).collect();
                    let flat = self.gather_flat(next, phase, &shares)?;
                    self.ahead.insert(next, (shares, flat));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// All parameters of a unit in one buffer, a row of shares for each rank.
    fn gather_flat(&mut self, unit: usize, phase: Phase, shares: &[ValueId]) -> Result<ValueId, Refused> {
        let row: Bytes = shares.iter().filter_map(|&value| self.builder.size_of(value)).sum();
        let size = row.checked_mul(u64::from(self.sharding.ranks)).unwrap_or(Bytes::MAX);
        let name = format!("{}.gathered", self.units.name(unit));
        let flat = self.add(
            self.units.members(unit)[0],
            ValueSpec { name, size, dtype: Dtype::Other, shape: vec![size.0], ..ValueSpec::default() },
        )?;
        self.collective(Collective::AllGather, phase, (shares, &[flat]), &[])?;
        Ok(flat)
    }

    /// A gradient of a unit is made: it waits for the others, the last one scatters all.
    pub(super) fn scatter_with(&mut self, unit: usize, gradient: (ValueId, ValueId)) -> Result<(), Refused> {
        let waiting = self.waiting.entry(unit).or_default();
        waiting.push(gradient);
        if waiting.len() < self.units.gradients(unit) {
            return Ok(());
        }
        self.scatter_unit(unit)
    }

    /// Scatters what waits of a unit's gradients: copied into one buffer, a row for each rank, and from there a share of each.
    pub(super) fn scatter_unit(&mut self, unit: usize) -> Result<(), Refused> {
        let waiting = self.waiting.remove(&unit).unwrap_or_default();
        let Some(&(first, _)) = waiting.first() else { return Ok(()) };
        let mut shares = Vec::with_capacity(waiting.len());
        for &(old, _) in &waiting {
            let share = self.value(old, true)?;
            self.reduced[old.index()] = Some(share);
            shares.push(share);
        }
        let row: Bytes = shares.iter().filter_map(|&value| self.builder.size_of(value)).sum();
        let size = row.checked_mul(u64::from(self.sharding.ranks)).unwrap_or(Bytes::MAX);
        let name = format!("{}.scattered", self.units.name(unit));
        let spec = ValueSpec { name, size, dtype: Dtype::Other, shape: vec![size.0], ..ValueSpec::default() };
        let flat = self.add(first, ValueSpec { role: Role::Gradient, ..spec })?;
        self.builder.op(OpSpec {
            name: format!("copy_in:{}", self.units.name(unit)),
            kind: "memfit.copy_in".to_owned(),
            module: self.module.clone(),
            phase: Phase::Backward,
            moved: size + size,
            reads: waiting.iter().map(|&(_, new)| new).collect(),
            writes: vec![flat],
            ..OpSpec::default()
        })?;
        self.collective(Collective::ReduceScatter, Phase::Backward, (&[flat], &shares), &[])
    }
}
