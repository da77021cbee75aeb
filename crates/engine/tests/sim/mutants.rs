//! The checks can fail: each engine and each shell that is broken on purpose is found out within
//! the seeds of an ordinary run, all of which the sound engine passes.

use engine::mutant::Mutant;

use crate::sabotage::Sabotage;
use crate::{Fault, SEEDS, run};

/// The first seed at which the harm is noticed, and how.
fn caught(fault: Fault) -> (u64, String) {
    SEEDS
        .clone()
        .find_map(|seed| run(seed, Some(fault), false).err().map(|why| (seed, why)))
        .unwrap_or_else(|| panic!("nobody noticed {fault:?}"))
}

macro_rules! mutants {
    ($kind:ident::$fault:ident: $($test:ident: $harm:ident;)+) => {$(
        #[test]
        fn $test() {
            let (seed, why) = caught(Fault::$fault($kind::$harm));
            println!("{:?} was noticed at seed {seed}: {why}", $kind::$harm);
        }
    )+};
}

mutants! { Mutant::Engine:
    replies_forgotten_are_noticed: ForgetsOwedReplies;
    half_a_message_forgotten_is_noticed: ForgetsHalfMessage;
    a_server_released_at_the_first_ready_is_noticed: ReleasesAtFirstReady;
    a_server_released_within_a_batch_is_noticed: ReleasesInBatch;
    a_sync_waited_for_in_vain_is_noticed: WaitsForSync;
    nothing_skipped_after_an_error_is_noticed: SkipsNothingAfterError;
    a_query_ended_at_its_first_command_is_noticed: EndsQueryAtFirstCommand;
    guessed_boundaries_are_noticed: GuessesBoundaries;
    a_failed_parse_kept_is_noticed: KeepsFailedParse;
    a_missed_discard_is_noticed: MissesDiscard;
    a_shared_unnamed_statement_is_noticed: SharesUnnamed;
    an_answer_out_of_turn_is_noticed: AnswersOutOfTurn;
    forwarded_own_replies_are_noticed: ForwardsOwnReplies;
    statements_without_end_are_noticed: NeverEvicts;
    a_server_released_while_canceling_is_noticed: ReleasesWhileCanceling;
    an_ignored_cancel_secret_is_noticed: IgnoresCancelSecret;
    an_answered_cancel_is_noticed: AnswersCancel;
    leaked_settings_are_noticed: LeaksSettings;
    a_set_missed_in_a_transaction_is_noticed: MissesSetInTransaction;
    a_skipped_reset_is_noticed: SkipsReset;
    a_skipped_check_is_noticed: SkipsCheck;
    a_leaked_place_is_noticed: LeaksPlace;
    an_exceeded_pool_size_is_noticed: ExceedsPoolSize;
    a_login_never_retried_is_noticed: NeverRetriesLogin;
    hasty_refusals_are_noticed: RefusesInHaste;
    an_effect_that_may_happen_twice_is_noticed: ResendsWhatHasEffect;
    resending_without_end_is_noticed: ResendsForEver;
    a_blind_renewal_is_noticed: RenewsBlindly;
    a_statement_never_renewed_is_noticed: NeverRenews;
    a_missed_change_of_the_schema_is_noticed: MissesSchemaChange;
    the_newest_served_first_is_noticed: ServesNewestFirst;
    workers_that_keep_to_themselves_are_noticed: NeverCrossesWorkers;
    a_lost_edge_is_noticed: LosesEdge;
    gathered_rows_are_noticed: GathersRows;
    a_reload_that_drops_servers_is_noticed: ReloadDropsServers;
    service_during_a_pause_is_noticed: ServesWhilePaused;
    an_idle_server_left_by_a_pause_is_noticed: KeepsPausedServers;
    a_login_ended_by_order_and_blamed_is_noticed: BlamesOrders;
    a_resume_that_wakes_nobody_is_noticed: ResumesNobody;
    an_obsolete_server_given_out_is_noticed: KeepsObsoleteServers;
    a_disabled_database_let_into_is_noticed: AdmitsToDisabled;
    a_question_never_asked_is_noticed: NeverAsksWhatIsLeft;
    a_strangers_setting_is_noticed: KeepsWhatOthersSet;
    a_forgotten_startup_packet_is_noticed: ForgetsStartupPacket;
    a_temporary_table_left_alone_is_noticed: PinsNobody;
    a_session_left_behind_is_noticed: LeavesSessionBehind;
    settings_refused_and_done_without_are_noticed: ServesWithoutSettings;
    a_single_order_of_settings_is_noticed: TriesOneOrder;
    a_single_server_for_settings_is_noticed: TriesOneServer;
    an_unmarked_handover_of_channels_is_noticed: HandsOverUnmarked;
    what_is_heard_twice_is_noticed: HearsTwice;
    a_hidden_gap_is_noticed: HidesGap;
    news_within_a_transaction_are_noticed: TellsInTransaction;
    news_of_what_was_given_up_are_noticed: TellsWhatWasGivenUp;
    a_servers_process_shown_is_noticed: ShowsServersProcess;
    half_applied_settings_are_noticed: ForgetsHalfAppliedSettings;
}

mutants! { Sabotage::Shell:
    a_lost_mail_is_noticed: LoseMail;
    a_forgotten_waiter_is_noticed: ForgetWaiter;
    a_client_never_resumed_is_noticed: DropResume;
    a_statement_swapped_is_noticed: SwapStatement;
    a_misdelivered_answer_is_noticed: Misdeliver;
    answers_out_of_order_are_noticed: ReorderReplies;
    a_lost_request_is_noticed: LoseRequest;
    servers_mistaken_for_each_other_are_noticed: SwapServers;
    a_late_cancel_request_is_noticed: HastyCancel;
    a_session_not_reset_is_noticed: SkipReset;
    a_leaked_server_is_noticed: KeepSocket;
    an_unnoticed_end_is_noticed: HideEnd;
}
