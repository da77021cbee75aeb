//! What is known of the session on a server (`pool_mode = auto`): plain data. Most of it is about the
//! present transaction of the server's client.

use crate::session::pins::Pinned;
use crate::session::resets::Resets;
use crate::session::scanning::Scanning;
use crate::session::sequences::DrawnNumbers;
use crate::session::setting_names::SettingNames;
use crate::session::state::{AllLent, Deallocations, Numbers, Traces};
use crate::session::state_report::StateReport;
use crate::values::Values;

#[derive(Debug, Default)]
pub struct ServerSession {
    /// What its client's present transaction may have left, until a probe has shown it.
    pub traces: Traces,
    /// What it had before that, or before the first of its parameters changed.
    pub before: Option<Values>,
    /// Of its client's message that is under way, if its text is a long one.
    pub scanning: Option<Box<Scanning>>,
    /// What its texts may have reset.
    pub resets: Resets,
    /// What its texts may have set of the application's own settings.
    pub setting_names: Option<Box<SettingNames>>,
    /// May that transaction have changed what texts mean?
    pub context_changed: bool,
    /// May it have set a tracked parameter by what its texts say, if only for itself?
    pub may_set: bool,
    /// Statements that it was lent for that transaction, under these names of its client's.
    pub lent: AllLent,
    /// Names that its texts deallocate.
    pub deallocations: Deallocations,
    /// Its client keeps it, for these reasons.
    pub pinned: Option<Box<Pinned>>,
    /// The client whose sequence numbers it would tell.
    pub numbers: Numbers,
    /// Numbers for which its client may ask.
    pub drawn: DrawnNumbers,
    /// The text by which that client may last have drawn one (`sequences.rs`); 0 = none.
    pub last_draw: u32,
    /// What it has reported of its session, if it does report.
    pub state_report: Option<Box<StateReport>>,
}
