//! What people look at: one step, or one snapshot, as a page, as traces for other tools, and as a snapshot for PyTorch's viewer.
//!
//! A [`Report`] is data: stays in memory, slices of lanes, figures and tables. All writers read the same one, and whatever
//! memfit can show becomes one: a plan, a snapshot of the CUDA allocator, a training that has run. Names come from files of
//! strangers; writers cut them, and replace what a terminal or a browser would obey.

mod chrome;
mod columns;
mod html;
mod memory_viz;
mod model;
mod perfetto;

pub use chrome::chrome_trace;
pub use html::{MAX_PAGE, html};
pub use memory_viz::memory_viz;
pub use model::{
    Axis, Curve, Figure, Instant, Kind, Lane, NameId, Names, Report, Slice, SliceKind, Stay, Table, Unit,
    shown_name,
};
pub use perfetto::perfetto;
