//! A client's way through its script: the beginning of a transaction, its actions, and its end.

use wire::frontend;

use super::{Client, Micros, Next, Shared, State};
use crate::script::Action;

impl Client {
    /// Continues from `Ready`, or at the time that it waited for.
    ///
    /// # Errors
    /// Why the client must give up.
    pub(crate) fn go_on(&mut self, shared: &mut Shared<'_>) -> Result<Next, String> {
        match self.state {
            State::Ready => self.schedule(shared),
            State::Throttled => self.begin_in_time(shared),
            State::Sleeping => {
                self.at += 1;
                self.run(shared)
            }
            State::New if shared.plan.reconnects && !self.is_due => self.schedule(shared),
            State::New => Ok(Next::Connection),
            _ => Ok(Next::Reply),
        }
    }

    /// Chooses the time of the next transaction.
    fn schedule(&mut self, shared: &mut Shared<'_>) -> Result<Next, String> {
        let plan = shared.plan;
        if plan.transactions.is_some_and(|most| self.transactions >= most) {
            return Ok(self.finish(shared));
        }
        self.at = 0;
        let Some(pause_us) = plan.pause_us else { return self.begin_in_time(shared) };
        shared.next_start += shared.random.wait(pause_us);
        self.scheduled = shared.next_start as Micros;
        if plan.duration_us.is_some_and(|end| self.scheduled >= end) {
            return Ok(self.finish(shared));
        }
        if self.scheduled > shared.now() {
            self.state = State::Throttled;
            return Ok(Next::Until(self.scheduled));
        }
        self.begin_in_time(shared)
    }

    /// Begins, unless the time is over. Under a rate that cannot be kept, this is long before all
    /// due transactions are done.
    fn begin_in_time(&mut self, shared: &mut Shared<'_>) -> Result<Next, String> {
        if shared.is_over() {
            return Ok(self.finish(shared));
        }
        self.begin(shared)
    }

    pub(super) fn begin(&mut self, shared: &mut Shared<'_>) -> Result<Next, String> {
        if self.link.is_none() {
            self.state = State::New;
            self.is_due = true;
            return Ok(Next::Connection);
        }
        self.begun = shared.now();
        if shared.plan.pause_us.is_none() {
            self.scheduled = self.begun;
        }
        self.run(shared)
    }

    /// Carries out one action after the other until one must wait.
    fn run(&mut self, shared: &mut Shared<'_>) -> Result<Next, String> {
        let plan = shared.plan;
        loop {
            match plan.script.actions.get(self.at) {
                None => return self.end(shared),
                Some(Action::Sql(statement)) => {
                    self.send(statement, shared);
                    self.state = State::Replying;
                    return Ok(Next::Reply);
                }
                Some(Action::Set(slot, expr)) => {
                    self.variables[*slot] = Some(expr.value(&self.variables, &mut self.random)?);
                }
                Some(Action::Sleep(us)) => {
                    self.state = State::Sleeping;
                    return Ok(Next::Until(shared.now().saturating_add(*us)));
                }
            }
            self.at += 1;
        }
    }

    /// Continues when a statement has its reply.
    pub(super) fn replied(&mut self, shared: &mut Shared<'_>) -> Result<Next, String> {
        match self.reply.error.take() {
            None => {
                self.at += 1;
                self.run(shared)
            }
            Some(refusal) if refusal.is_passing => {
                shared.stats.failed += 1;
                if self.reply.status == b'I' {
                    return self.leave(shared);
                }
                frontend::query(&mut shared.out, b"ROLLBACK");
                self.state = State::RollingBack;
                Ok(Next::Reply)
            }
            Some(refusal) => Err(refusal.text),
        }
    }

    pub(super) fn rolled_back(&mut self, shared: &mut Shared<'_>) -> Result<Next, String> {
        match self.reply.error.take() {
            Some(refusal) => Err(refusal.text),
            None => self.leave(shared),
        }
    }

    /// Ends the script.
    fn end(&mut self, shared: &mut Shared<'_>) -> Result<Next, String> {
        if self.reply.status == b'T' {
            return Err("end of script reached without completing the last transaction".to_owned());
        }
        let latency = shared.now().saturating_sub(self.scheduled);
        let stats = &mut shared.stats;
        stats.done += 1;
        stats.latency.record(latency);
        stats.histogram.record_us(latency);
        if shared.plan.pause_us.is_some() {
            stats.lag.record(self.begun.saturating_sub(self.scheduled));
        }
        self.leave(shared)
    }

    /// Continues with the next transaction after success or failure.
    fn leave(&mut self, shared: &mut Shared<'_>) -> Result<Next, String> {
        self.transactions += 1;
        let has_waited = !matches!(self.state, State::Ready | State::Throttled);
        self.state = State::Ready;
        if shared.plan.reconnects {
            self.hang_up(shared);
        }
        if has_waited {
            return self.schedule(shared);
        }
        // A script that never waits would keep the thread from its other clients.
        Ok(Next::Until(shared.now()))
    }

    fn finish(&mut self, shared: &mut Shared<'_>) -> Next {
        self.hang_up(shared);
        self.state = State::Finished;
        Next::Nothing
    }

    /// Sends Terminate and drops the connection.
    fn hang_up(&mut self, shared: &mut Shared<'_>) {
        if let Some(mut link) = self.link.take() {
            shared.out.clear();
            frontend::terminate(&mut shared.out);
            // A failure does not matter any more.
            let _ = link.caller.send(&shared.out);
            shared.out.clear();
        }
        self.reply.status = 0;
    }
}
