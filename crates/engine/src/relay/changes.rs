//! The changes of a server's current transaction that are committed or undone with it, as far as
//! Weir must know of them: plain data.

use crate::ids::ClientId;
use crate::values::Values;
use crate::vars::Slots;

/// The changes that the current transaction has made. The box is empty if there are none.
#[derive(Debug, Default)]
pub struct Changes(Option<Box<Made>>);

#[derive(Debug, Default)]
struct Made {
    /// It has changed the schema.
    schema: bool,
    /// Its client's values before it changed the first tracked parameter, if the client keeps its
    /// connection when the server is lost.
    values_before: Option<Values>,
    reported: Reported,
    /// Values that RESET is to explain when the client has given the server back. They outlast the
    /// transaction.
    unexplained: Option<Unexplained>,
}

/// The parameters that a server has reported during a transaction, in transaction and statement mode.
/// Weir does not read the texts there: either the client has set them, or a reload of PostgreSQL's
/// configuration has changed their defaults.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    pub(super) slots: Slots,
    /// The client's values before the first report.
    pub(super) before: Option<Values>,
    /// SET has run.
    pub(super) sets: bool,
    /// RESET or DISCARD ALL has run.
    pub(super) resets: bool,
}

/// Parameters that have another value than before a transaction, though no command tag tells that the
/// client has set them.
#[derive(Debug)]
pub(crate) struct Unexplained {
    pub(crate) slots: Slots,
    /// The client of the transaction, and its serial number.
    pub(crate) client: (ClientId, u64),
}

impl Changes {
    /// Returns the changes of a transaction that was begun in another process.
    pub(crate) fn imported(schema: bool, values_before: Option<Values>) -> Self {
        let is_any = schema || values_before.is_some();
        Self(is_any.then(|| Box::new(Made { schema, values_before, ..Made::default() })))
    }

    fn made(&mut self) -> &mut Made {
        self.0.get_or_insert_default()
    }

    /// Has the transaction changed the schema?
    pub(crate) fn has_schema(&self) -> bool {
        self.0.as_ref().is_some_and(|made| made.schema)
    }

    /// Returns its client's values before it changed the first tracked parameter, if they are kept.
    pub(crate) fn values_before(&self) -> Option<&Values> {
        self.0.as_ref()?.values_before.as_ref()
    }

    /// Returns the values that RESET is to explain.
    #[inline]
    pub(crate) fn unexplained(&self) -> Option<&Unexplained> {
        self.0.as_ref()?.unexplained.as_ref()
    }

    pub(super) fn schema(&mut self) {
        self.made().schema = true;
    }

    pub(super) fn set(&mut self) {
        self.made().reported.sets = true;
    }

    pub(super) fn reset(&mut self) {
        self.made().reported.resets = true;
    }

    /// A parameter is reported anew, in transaction or statement mode. `values`: the client's.
    pub(super) fn report(&mut self, slot: usize, values: &Values) {
        let reported = &mut self.made().reported;
        reported.slots.add(slot);
        reported.before.get_or_insert_with(|| values.clone());
    }

    /// A tracked parameter changes, and its client keeps its connection when the server is lost.
    pub(super) fn keep(&mut self, values: &Values) {
        self.made().values_before.get_or_insert_with(|| values.clone());
    }

    /// The transaction is over. Returns whether it has changed the schema, and the parameters that
    /// were reported.
    #[inline]
    pub(super) fn end_transaction(&mut self) -> Option<(bool, Reported)> {
        let made = self.0.take()?;
        Some(self.end(*made))
    }

    /// Most transactions have changed nothing, and do not come here.
    #[inline(never)]
    fn end(&mut self, made: Made) -> (bool, Reported) {
        let Made { schema, reported, unexplained, .. } = made;
        if unexplained.is_some() {
            self.made().unexplained = unexplained;
        }
        (schema, reported)
    }

    /// A parameter of this client, given with its serial number, has a new value that no command
    /// tag explains.
    pub(super) fn leave_unexplained(&mut self, slot: usize, client: (ClientId, u64)) {
        let none = || Unexplained { slots: Slots::default(), client };
        let unexplained = self.made().unexplained.get_or_insert_with(none);
        unexplained.slots.add(slot);
        unexplained.client = client;
    }

    /// RESET has changed this parameter: the client had set it.
    pub(super) fn explain(&mut self, slot: usize) {
        if let Some(unexplained) = self.0.as_mut().and_then(|made| made.unexplained.as_mut()) {
            unexplained.slots.remove(slot);
        }
    }

    /// RESET has run. Returns the values that are still unexplained.
    pub(crate) fn take_unexplained(&mut self) -> Option<Unexplained> {
        self.0.take()?.unexplained
    }

    /// The transaction is lost. Returns its client's values from before it, if they are kept.
    pub(crate) fn undo(&mut self) -> Option<Values> {
        self.0.take()?.values_before
    }
}
