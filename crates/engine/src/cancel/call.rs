//! Finds a call of `pg_cancel_backend` or `pg_terminate_backend` in a client's message.

use std::borrow::Cow;

use sql::{Process, SignalCall, signal_call};
use wire::messages::{FirstParameter, first_parameter, parameter_count};
use wire::{cancel_key, frontend};

use crate::cancel::signaling::Call;

/// PostgreSQL's type OIDs (`pg_type.dat`).
const INT8: u32 = 20;
const INT2: u32 = 21;
pub(crate) const INT4: u32 = 23;
const TEXT: u32 = 25;
const UNKNOWN: u32 = 705;
const VARCHAR: u32 = 1043;

/// Returns the call in a text, if its process id can be one of Weir's, and the name of its column.
/// `bind`: the parameter types, and the body of the Bind.
pub(crate) fn call_of<'a>(
    text: &'a [u8],
    bind: Option<(&[u8], &[u8])>,
) -> Option<(Call, Cow<'a, [u8]>)> {
    let SignalCall { terminates, process, casts, column } = signal_call(text)?;
    let process_id = match (process, bind) {
        (Process::Id(id), None) => id,
        (Process::Id(id), Some((types, body))) => {
            let takes_none = types == frontend::NO_TYPES && parameter_count(body) == Some(0);
            takes_none.then_some(id)?
        }
        (Process::Parameter, bind) => {
            let (types, body) = bind?;
            given(types, body, casts)?
        }
    };
    let may_be_ours = cancel_key::is_of_no_process(process_id);
    may_be_ours.then_some((Call { process_id, terminates }, column))
}

/// Returns the process id in the only parameter, if PostgreSQL would also read it as an integer.
fn given(types: &[u8], body: &[u8], casts: bool) -> Option<u32> {
    let FirstParameter { is_binary, value, count } = first_parameter(body)?;
    let value = value.filter(|_| count == 1)?;
    let declared = match types {
        [0, 0] => 0,
        [0, 1, rest @ ..] => u32::from_be_bytes(*rest.first_chunk()?),
        _ => return None,
    };
    let is_text = match declared {
        0 | INT4 => !is_binary,
        INT2 | INT8 if declared == INT2 || casts => !is_binary,
        TEXT | UNKNOWN | VARCHAR if casts => true,
        _ => return None,
    };
    match (is_text, value) {
        (true, text) => str::from_utf8(text).ok()?.trim_ascii().parse().ok(),
        (false, &[a, b, c, d]) if declared != INT8 => Some(u32::from_be_bytes([a, b, c, d])),
        (false, bytes) if declared == INT8 => {
            u32::try_from(u64::from_be_bytes(bytes.try_into().ok()?)).ok()
        }
        (false, _) => None,
    }
}
