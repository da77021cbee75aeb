//! Engines broken on purpose. Each [`Mutant`] is a mistake that other poolers have made, put into
//! the decision where it would be made here; the simulator must notice every one.
//!
//! It takes the feature `mutants`, which only the tests of this crate turn on, to bring one to
//! life. Without it [`is`] is the constant `false`, and nothing of this is in the program.
//!
//! Issue numbers are those of the projects' public trackers.

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A server whose client has gone is passed on with its replies unread (pgdog#759,
    /// pgagroal#989).
    ForgetsOwedReplies,
    /// The client went in the middle of a message, and the rest is never sent (supavisor#1060).
    ForgetsHalfMessage,
    /// A batch that several ReadyForQuery answer is over at the first (supavisor#1079).
    ReleasesAtFirstReady,
    /// A batch without its Sync does not hold the server (pgdog#803).
    ReleasesInBatch,
    /// A Query behind Bind and Execute does not end their batch: a Sync is waited for
    /// (pgdog#1356).
    WaitsForSync,
    /// Of a failed batch only the failed message is done with (pgdog#876, pgdog#913,
    /// odyssey#1361).
    SkipsNothingAfterError,
    /// A string of several statements is over with the first of them (pgcat#611, pgcat#734).
    EndsQueryAtFirstCommand,
    /// A message is believed to begin where a read does (pgagroal#973, pgagroal#996).
    GuessesBoundaries,
    /// A statement whose Parse failed is believed to be there (pgdog#887, odyssey#477).
    KeepsFailedParse,
    /// DISCARD ALL and DEALLOCATE ALL are not noticed (pgbouncer#991, pgbouncer#1129).
    MissesDiscard,
    /// CREATE, ALTER and DROP are not noticed: who prepares a statement anew gets the types that
    /// it had before (PgBouncer, whose manual wants a RECONNECT).
    MissesSchemaChange,
    /// Whose the unnamed statement is does not matter (asyncpg#53, pgbouncer#1118).
    SharesUnnamed,
    /// A Parse that need not be sent is answered before its turn (pg_doorman, pipelines cut off).
    AnswersOutOfTurn,
    /// Answers to the pooler's own Parse and Close go to the client (pgdog#57, odyssey#1362).
    ForwardsOwnReplies,
    /// A server gets ever more statements (pgdog#1260, pgbouncer#1067).
    NeverEvicts,
    /// A server is passed on while a cancel request for it is under way (pgbouncer#245,
    /// odyssey#1216).
    ReleasesWhileCanceling,
    /// A cancel request needs the process id only (pgbouncer#38, supavisor#692).
    IgnoresCancelSecret,
    /// Who asks for a cancel gets an answer (pgbouncer#141).
    AnswersCancel,
    /// A client finds the settings of the one before (pgbouncer#1576, pgdog#686).
    LeaksSettings,
    /// What SET changes within a transaction is not noticed (multigres#1134, multigres#1138).
    MissesSetInTransaction,
    /// A session is passed on as it is (Odyssey without pool_discard, pgdog#684).
    SkipsReset,
    /// A server that was idle is given out without being asked whether it lives (pgdog#1318,
    /// supavisor#941).
    SkipsCheck,
    /// A place in the pool is lost with each server (pgdog#1361, pg_doorman 3.5.2).
    LeaksPlace,
    /// More servers than the pool may have (pgbouncer#1386, pgbouncer#478).
    ExceedsPoolSize,
    /// After one failure nobody tries again (pgbouncer#1582, pgbouncer#585).
    NeverRetriesLogin,
    /// A failed login turns clients away although servers are there (pgbouncer#1284).
    RefusesInHaste,
    /// A request is sent to another server although the first may have committed it (pgdog#614,
    /// PgCat's retries).
    ResendsWhatHasEffect,
    /// A request that has no effect is sent again and again, as long as servers die over it.
    ResendsForEver,
    /// A refused statement is prepared anew and executed whatever its rows are now: who was told of
    /// other columns gets them unawares (what healing by a mere Parse comes to).
    RenewsBlindly,
    /// A refused statement is never prepared anew (pgbouncer#1038, pgjdbc#496).
    NeverRenews,
    /// Who came last is served first (pgagroal#1006).
    ServesNewestFirst,
    /// Each worker serves its own clients only (pgbouncer#1386, pgcat#872).
    NeverCrossesWorkers,
    /// A client whose bytes wait in the kernel is not told to go on (odyssey#1499, odyssey#1475).
    LosesEdge,
    /// A long row is gathered before it is passed on (pg_doorman's incident of 2026-05-03,
    /// odyssey#421).
    GathersRows,
    /// A reload ends the servers in use (odyssey#209, pgagroal#946).
    ReloadDropsServers,
    /// Who waits is served in spite of PAUSE (pgbouncer#35).
    ServesWhilePaused,
    /// Idle servers of a paused pool stay (pgcat#917).
    KeepsPausedServers,
    /// A login that PAUSE or RECONNECT ends is taken for a failure of the server (pgbouncer#420).
    BlamesOrders,
    /// RESUME wakes nobody: who waits has to wait for something else to happen (pgbouncer#1565).
    ResumesNobody,
    /// Servers that RECONNECT was to replace are given out as before (pgcat#232).
    KeepsObsoleteServers,
    /// DISABLE keeps nobody out.
    AdmitsToDisabled,
    /// Nobody is asked what a transaction has left in its session (PgBouncer's transaction mode, of
    /// which its manual warns).
    NeverAsksWhatIsLeft,
    /// What only the client before had set stays for the next one.
    KeepsWhatOthersSet,
    /// RESET goes to the server's default, whatever the startup packet said.
    ForgetsStartupPacket,
    /// A client with a temporary table does not keep its server.
    PinsNobody,
    /// Who leaves is not cleaned up after.
    LeavesSessionBehind,
    /// A server that has refused a client's settings serves it all the same, without them.
    ServesWithoutSettings,
    /// Who is refused its settings in one order is not given them in the other.
    TriesOneOrder,
    /// Who is refused its settings by one server is not given a new one.
    TriesOneServer,
    /// The server of a client that listens is told to stop before the listener's word counts.
    HandsOverUnmarked,
    /// What servers tell of a channel of which the listener tells is passed on, too.
    HearsTwice,
    /// Who was not heard for a while is not told so.
    HidesGap,
    /// What others have notified is told also within a transaction.
    TellsInTransaction,
    /// What was kept for a client is told although it has given up the channel.
    TellsWhatWasGivenUp,
    /// What a client has notified itself bears the process id of its server.
    ShowsServersProcess,
    /// The settings of a client that has left while they were made are taken for made or not made.
    ForgetsHalfAppliedSettings,
}

#[cfg(feature = "mutants")]
thread_local! {
    static PRESENT: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Is the engine of this thread broken in that way?
#[cfg(feature = "mutants")]
pub(crate) fn is(mutant: Mutant) -> bool {
    PRESENT.get() == Some(mutant)
}

#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub(crate) const fn is(_: Mutant) -> bool {
    false
}

/// From now on, in this thread.
#[cfg(feature = "mutants")]
pub fn set(mutant: Option<Mutant>) {
    PRESENT.set(mutant);
}
