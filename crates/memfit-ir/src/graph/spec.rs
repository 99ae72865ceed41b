//! Ops and values as they were handed to a builder, so that a graph can be made of another one.

use super::{Op, OpSpec, Value, ValueSpec};

impl Op<'_> {
    /// What adds the same op to a builder, over values of the same ids.
    #[must_use]
    pub fn to_spec(&self) -> OpSpec {
        OpSpec {
            name: self.name.to_owned(),
            kind: self.kind.to_owned(),
            attributes: self.attributes.map(str::to_owned),
            module: self.module.to_owned(),
            phase: self.phase,
            flops: self.flops,
            moved: self.moved,
            dtype: self.dtype,
            time: self.time,
            workspace: self.workspace,
            effect: self.effect,
            reads: self.reads.to_vec(),
            needs: self.needs.to_vec(),
            writes: self.writes.to_vec(),
            reuses: self.reuses.to_vec(),
            algorithms: self.algorithms.to_vec(),
        }
    }
}

impl Value<'_> {
    /// What adds the same value to a builder.
    #[must_use]
    pub fn to_spec(&self) -> ValueSpec {
        ValueSpec {
            name: self.name.to_owned(),
            size: self.size,
            dtype: self.dtype,
            shape: self.shape.to_vec(),
            role: self.role,
            density: self.density,
            sensitivity: self.sensitivity,
            pin: self.pin,
        }
    }
}
