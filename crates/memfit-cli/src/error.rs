//! How a command ends when it does not end well.

use memfit::Failure;
use memfit::checkpoint;

/// Anything that stops a command.
#[derive(Debug)]
pub(crate) enum Error {
    /// What the front door says; `file` is the one it's about.
    Failure {
        /// Name of the file, as the user gave it.
        file: Option<String>,
        /// What it says.
        failure: Failure,
    },
    /// Something ran out of room, or of patience.
    Stuck {
        /// Why.
        why: String,
        /// Whether looking ahead may help.
        online: bool,
    },
    /// A training does not fit.
    #[cfg(feature = "run")]
    Small {
        /// What is wrong.
        message: String,
        /// What would do.
        hint: String,
    },
    /// A training could not go on.
    #[cfg(feature = "run")]
    Training(String),
    /// A training came to something else with memfit.
    #[cfg(feature = "run")]
    Differs,
    /// A checkpoint can't be read or made.
    Checkpoint {
        /// Name of the file.
        file: String,
        /// What stands in the way.
        error: checkpoint::Error,
        /// Whether that is what was to be found out.
        judged: bool,
    },
    /// All has been said already; only the exit status is left.
    Silent(u8),
    /// A file can't be read.
    Read(anyhow::Error),
    /// A file can't be written.
    Write(anyhow::Error),
}

impl Error {
    /// The process's exit status.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Error::Failure { failure, .. } => failure.exit_code(),
            Error::Stuck { .. } => 1,
            #[cfg(feature = "run")]
            Error::Small { .. } => 1,
            #[cfg(feature = "run")]
            Error::Training(_) => 5,
            #[cfg(feature = "run")]
            Error::Differs => 70,
            Error::Silent(code) => *code,
            Error::Checkpoint { error, judged, .. } => match error {
                checkpoint::Error::Usage(_) | checkpoint::Error::NoBase { .. } => 2,
                checkpoint::Error::Write(_) => 5,
                checkpoint::Error::OtherBase { .. } => 4,
                checkpoint::Error::Index(_) | checkpoint::Error::Damaged { .. } if *judged => 6,
                _ => 3,
            },
            Error::Read(_) => 3,
            Error::Write(_) => 5,
        }
    }

    /// Whether the command has printed an object all the same.
    pub(crate) fn is_told(&self) -> bool {
        match self {
            #[cfg(feature = "run")]
            Error::Differs => true,
            _ => false,
        }
    }

    /// The word for it in JSON.
    pub(crate) fn status(&self) -> &'static str {
        if let Error::Failure { failure: Failure::Timeout(_), .. } = self {
            return "timeout";
        }
        if let Error::Checkpoint { error: checkpoint::Error::OtherBase { .. }, .. } = self {
            return "other-base";
        }
        match self.exit_code() {
            1 => "infeasible",
            2 => "usage",
            3 => "bad-input",
            4 => "other-graph",
            5 => "resources",
            6 => "rejected",
            _ => "bug",
        }
    }

    /// The next step, if there is one.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Error::Failure { failure, .. } => failure.hint(),
            Error::Stuck { online: true, .. } => {
                Some("a larger `--budget`, or `--mode planned`, may do".to_owned())
            }
            Error::Stuck { online: false, .. } => Some("a larger `--budget` may do".to_owned()),
            #[cfg(feature = "run")]
            Error::Small { hint, .. } => Some(hint.clone()),
            #[cfg(feature = "run")]
            Error::Training(_) | Error::Differs => None,
            Error::Checkpoint { error: checkpoint::Error::NoBase { .. }, .. } => {
                Some("`--base FILE`; if that is a difference too, all of them, the oldest first".to_owned())
            }
            Error::Checkpoint { error, .. } => error.hint(),
            Error::Silent(_) | Error::Read(_) | Error::Write(_) => None,
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Failure {
                file: Some(file),
                failure: failure @ (Failure::Input(_) | Failure::Rejected(_)),
            } => {
                write!(f, "`{file}`: {failure}")
            }
            Error::Failure { failure, .. } => failure.fmt(f),
            Error::Stuck { why, .. } => f.write_str(why),
            #[cfg(feature = "run")]
            Error::Small { message, .. } | Error::Training(message) => f.write_str(message),
            #[cfg(feature = "run")]
            Error::Differs => f.write_str("results differ from the run without memfit: a bug"),
            Error::Checkpoint { error: error @ checkpoint::Error::Usage(_), .. } => error.fmt(f),
            Error::Checkpoint { file, error, .. } => write!(f, "`{file}`: {error}"),
            Error::Silent(_) => Ok(()),
            Error::Read(error) | Error::Write(error) => write!(f, "{error:#}"),
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        Error::Failure { file: None, failure }
    }
}
