//! A client's way through its scripts: the beginning of a transaction, its commands, and its end.

use wire::frontend;

use super::{Client, Micros, Next, Shared, State, reply::Awaited};
use crate::{
    expr::Scope,
    plan::{Mode, Plan},
    script::{Action, Amount, Store},
    stats::Failure,
    value::Value,
};

impl Client {
    /// Continues from `Ready`, or at the time that it waited for.
    ///
    /// # Errors
    /// Why the client must give up.
    pub(crate) fn go_on(&mut self, shared: &mut Shared<'_>) -> Result<Next, String> {
        match self.state {
            State::Ready => self.choose(shared),
            State::Throttled => self.begin_in_time(shared),
            State::Sleeping => {
                self.finish_command(shared);
                self.run(shared)
            }
            State::New if shared.plan.reconnects && !self.is_due => self.choose(shared),
            State::New => Ok(Next::Connection),
            _ => Ok(Next::Reply),
        }
    }

    /// Chooses the next transaction and its time.
    fn choose(&mut self, shared: &mut Shared<'_>) -> Result<Next, String> {
        let plan = shared.plan;
        if plan.transactions.is_some_and(|most| self.transactions >= most) {
            return Ok(self.finish(shared));
        }
        self.script = plan.choose(&mut shared.random);
        self.at = 0;
        let Some(pause_us) = plan.pause_us else { return self.begin_in_time(shared) };
        let now = shared.now();
        loop {
            shared.next_start += shared.random.wait(pause_us);
            self.scheduled = shared.next_start as Micros;
            if plan.duration_us.is_some_and(|end| self.scheduled >= end) {
                return Ok(self.finish(shared));
            }
            // A client that cannot meet the latency limit any more skips its query.
            let is_late = plan.latency_limit_us.is_some_and(|limit| self.scheduled + limit < now);
            if !is_late {
                break;
            }
            shared.stats.scripts[self.script].counts.skipped += 1;
            self.transactions += 1;
            if plan.transactions.is_some_and(|most| self.transactions >= most) {
                return Ok(self.finish(shared));
            }
        }
        if self.scheduled > now {
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
        let now = shared.now();
        self.begun = now;
        if shared.plan.pause_us.is_none() {
            self.scheduled = now;
        }
        self.tries = 1;
        self.random_before = self.random.clone();
        self.run(shared)
    }

    /// Runs one command after the other until one must wait.
    fn run(&mut self, shared: &mut Shared<'_>) -> Result<Next, String> {
        let plan = shared.plan;
        loop {
            let Some(command) = plan.scripts[self.script].commands.get(self.at) else {
                return self.end(shared);
            };
            if plan.by_command {
                self.asked = shared.now();
            }
            match &command.action {
                Action::Sql(statement) => {
                    if self.in_pipeline && statement.store.is_some() {
                        return Err("\\gset and \\aset are not allowed in pipeline mode".into());
                    }
                    if !self.in_pipeline {
                        self.reply.begin(statement.store.is_some());
                    }
                    self.send(statement, shared);
                    if !self.in_pipeline {
                        self.state = State::Replying;
                        return Ok(Next::Reply);
                    }
                }
                Action::Set(slot, expr) => {
                    let mut scope = Scope { variables: &self.variables, random: &mut self.random };
                    let value = expr.value(&mut scope).map_err(|error| error.to_string())?;
                    self.variables[*slot] = Some(value);
                }
                Action::Sleep(amount, unit_us) => {
                    let pause = self.amount(amount)?.saturating_mul(*unit_us);
                    self.state = State::Sleeping;
                    return Ok(Next::Until(shared.now() + pause));
                }
                Action::Branch { condition, otherwise } => {
                    let mut scope = Scope { variables: &self.variables, random: &mut self.random };
                    let holds = condition.value(&mut scope).map_err(|error| error.to_string())?;
                    if !holds.is_true() {
                        self.jump(shared, *otherwise);
                        continue;
                    }
                }
                Action::Jump(to) => {
                    self.jump(shared, *to);
                    continue;
                }
                Action::StartPipeline => self.start_pipeline(plan)?,
                Action::SyncPipeline | Action::EndPipeline => {
                    if !self.in_pipeline {
                        return Err("not in pipeline mode".to_owned());
                    }
                    frontend::sync(&mut shared.out);
                    self.reply.awaited.push_back(Awaited::ReadyForQuery);
                    if matches!(command.action, Action::EndPipeline) {
                        self.in_pipeline = false;
                        self.state = State::Replying;
                        return Ok(Next::Reply);
                    }
                }
            }
            self.finish_command(shared);
        }
    }

    fn start_pipeline(&mut self, plan: &Plan) -> Result<(), String> {
        if plan.mode == Mode::Simple {
            return Err("cannot use pipeline mode with the simple query protocol".to_owned());
        }
        if self.in_pipeline {
            return Err("already in pipeline mode".to_owned());
        }
        self.in_pipeline = true;
        self.reply.begin(false);
        Ok(())
    }

    fn amount(&self, amount: &Amount) -> Result<u64, String> {
        let count = match amount {
            Amount::Fixed(count) => *count,
            Amount::Variable(slot) => match self.variables.get(*slot) {
                Some(Some(value)) => value
                    .typed()
                    .and_then(|value| value.int())
                    .map_err(|error| format!("invalid sleep time: {error}"))?,
                _ => return Err("undefined variable in \\sleep".to_owned()),
            },
        };
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// Counts the command and continues with the next one.
    fn finish_command(&mut self, shared: &mut Shared<'_>) {
        self.jump(shared, self.at + 1);
    }

    fn jump(&mut self, shared: &mut Shared<'_>, to: usize) {
        if shared.plan.by_command {
            let took = shared.now().saturating_sub(self.asked);
            shared.stats.scripts[self.script].commands[self.at].latency.record(took);
        }
        self.at = to;
    }

    /// Continues when all requests have replies.
    pub(super) fn replied(&mut self, shared: &mut Shared<'_>) -> Result<Next, String> {
        let plan = shared.plan;
        if let Some(refusal) = self.reply.error.take() {
            let Some(failure) = refusal.failure else { return Err(refusal.text) };
            if plan.verbose_errors {
                eprintln!(
                    "weir bench: client {} got an error in command {} (SQL) of script {}; {}",
                    self.number, self.at, self.script, refusal.text
                );
            }
            return self.fail(failure, shared);
        }
        if let Action::Sql(statement) = &plan.scripts[self.script].commands[self.at].action
            && let Some(store) = &statement.store
        {
            self.store(store, plan)?;
        }
        self.finish_command(shared);
        self.run(shared)
    }

    /// Carries out `\gset` and `\aset`. Columns that no script mentions are skipped.
    fn store(&mut self, store: &Store, plan: &Plan) -> Result<(), String> {
        let kept = std::mem::take(&mut self.reply.kept);
        if !store.of_all {
            let rows = kept.last().map_or(0, |(rows, _)| *rows);
            if rows != 1 {
                return Err(format!("expected one row, got {rows}"));
            }
        }
        let first = if store.of_all { 0 } else { kept.len() - 1 };
        for (_, row) in kept.into_iter().skip(first) {
            for (column, value) in row {
                if let Some(slot) = plan.names.find(&format!("{}{column}", store.prefix)) {
                    let text = |value: String| Value::Text(value.into());
                    self.variables[slot] = Some(value.map_or(Value::Null, text));
                }
            }
        }
        Ok(())
    }

    /// Deals with an error that another try may avoid. First it leaves the transaction.
    fn fail(&mut self, failure: Failure, shared: &mut Shared<'_>) -> Result<Next, String> {
        let retries = self.may_retry(shared);
        let script = &mut shared.stats.scripts[self.script];
        let command = &mut script.commands[self.at];
        if retries {
            command.retries += 1;
            script.counts.retries += 1;
            if self.tries == 1 {
                script.counts.retried += 1;
            }
            self.tries += 1;
        } else {
            command.failures += 1;
            script.counts.fail(failure);
            self.tries = 0;
        }
        if self.reply.status == b'I' {
            return self.start_over(shared);
        }
        self.reply.begin(false);
        frontend::query(&mut shared.out, b"ROLLBACK");
        self.reply.awaited.push_back(Awaited::ReadyForQuery);
        self.state = State::RollingBack;
        Ok(Next::Reply)
    }

    fn may_retry(&self, shared: &Shared<'_>) -> bool {
        let plan = shared.plan;
        if plan.tries_max > 0 && self.tries >= plan.tries_max {
            return false;
        }
        let took = shared.now().saturating_sub(self.scheduled);
        let is_late = plan.latency_limit_us.is_some_and(|limit| took > limit);
        !shared.is_over() && !is_late
    }

    pub(super) fn rolled_back(&mut self, shared: &mut Shared<'_>) -> Result<Next, String> {
        match self.reply.error.take() {
            Some(refusal) => Err(refusal.text),
            None => self.start_over(shared),
        }
    }

    /// Starts the same transaction again after a failure, or the next one.
    fn start_over(&mut self, shared: &mut Shared<'_>) -> Result<Next, String> {
        if self.tries == 0 {
            return self.leave(shared);
        }
        self.random = self.random_before.clone();
        self.at = 0;
        self.run(shared)
    }

    /// Ends the script.
    fn end(&mut self, shared: &mut Shared<'_>) -> Result<Next, String> {
        if self.in_pipeline {
            return Err("end of script reached with pipeline open".to_owned());
        }
        if self.reply.status == b'T' {
            return Err("end of script reached without completing the last transaction".to_owned());
        }
        let now = shared.now();
        let latency = now.saturating_sub(self.scheduled);
        let script = &mut shared.stats.scripts[self.script];
        script.counts.done += 1;
        script.counts.latency.record(latency);
        script.histogram.record_us(latency);
        if shared.plan.pause_us.is_some() {
            script.counts.lag.record(self.begun.saturating_sub(self.scheduled));
        }
        if shared.plan.latency_limit_us.is_some_and(|limit| latency > limit) {
            script.counts.late += 1;
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
            return self.choose(shared);
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
