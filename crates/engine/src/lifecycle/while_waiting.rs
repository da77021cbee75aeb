//! A client's waits for servers, and the steps that are due when it has one: plain data.

/// Steps that were taken during the present or last wait for a server, and steps that follow it.
#[derive(Clone, Copy, Debug, Default)]
pub struct WhileWaiting {
    /// The client was told that it waits (`query_wait_notify`).
    notified: bool,
    /// The client's unread bytes were examined (`cancel/ahead.rs`).
    looked_at: bool,
    reader: ReaderPlace,
    steps: Steps,
}

/// The steps that are due when a client has a server, before its messages go there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Steps(u8);

impl Steps {
    /// The server is put into a failed transaction: the client's own was lost
    /// (`lifecycle/failed.rs`).
    pub(crate) const FAILS: Self = Self(1);
    /// The client's transaction is begun again on the server: a reader has refused its first
    /// statement (`routing/begun.rs`).
    pub(crate) const BEGINS: Self = Self(2);
    /// The link is timed (`connection_timings`): the client's first transaction is still to come.
    pub(crate) const TIMED: Self = Self(4);
    pub(crate) const ANY: Self = Self(7);
}

impl std::ops::BitOr for Steps {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// May a client that waits for a reader go elsewhere?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReaderPlace {
    /// It does not wait for a reader, or its request names the node.
    #[default]
    Fixed,
    /// It does if the pool stays full.
    Open,
    /// It did.
    Left,
}

impl WhileWaiting {
    /// A new wait begins. Returns whether the client's bytes were examined during the last one.
    #[inline]
    pub(crate) fn begin(&mut self) -> bool {
        self.notified = false;
        std::mem::take(&mut self.looked_at)
    }

    pub(crate) fn is_notified(self) -> bool {
        self.notified
    }

    pub(crate) fn notify(&mut self) {
        self.notified = true;
    }

    pub(crate) fn has_looked(self) -> bool {
        self.looked_at
    }

    pub(crate) fn look(&mut self) {
        self.looked_at = true;
    }

    /// May the client leave the reader's pool in which it waits?
    pub(crate) fn may_leave_reader(self) -> bool {
        self.reader == ReaderPlace::Open
    }

    /// The client's request may go to a reader. `is_fixed`: it names the node.
    pub(crate) fn choose_reader(&mut self, is_fixed: bool) {
        self.reader = match self.reader {
            _ if is_fixed => ReaderPlace::Fixed,
            ReaderPlace::Left => ReaderPlace::Left,
            ReaderPlace::Fixed | ReaderPlace::Open => ReaderPlace::Open,
        };
    }

    /// The client leaves a reader's full pool.
    pub(crate) fn leave_reader(&mut self) {
        self.reader = ReaderPlace::Left;
    }

    /// The client comes to a reader's pool. Returns its place until then.
    pub(crate) fn come_to_reader(&mut self) -> ReaderPlace {
        let place = self.reader;
        if place == ReaderPlace::Left {
            self.reader = ReaderPlace::Open;
        }
        place
    }

    /// Is any of these steps due?
    #[inline]
    pub(crate) fn is_due(self, any: Steps) -> bool {
        self.steps.0 & any.0 != 0
    }

    /// The step is due when the client has a server.
    pub(crate) fn plan(&mut self, step: Steps) {
        self.steps.0 |= step.0;
    }

    pub(crate) fn done(&mut self, step: Steps) {
        self.steps.0 &= !step.0;
    }
}
