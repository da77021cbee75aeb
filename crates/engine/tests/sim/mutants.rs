//! The checks can fail: each kind of sabotage is found within the seeds tried, most in the first few.

use crate::run;
use crate::sabotage::Sabotage;

/// The first seed at which the harm is noticed, and how.
fn caught(sabotage: Sabotage) -> (u64, String) {
    (0..2_000)
        .filter(|seed| run(*seed, None, false).is_ok())
        .find_map(|seed| run(seed, Some(sabotage), false).err().map(|why| (seed, why)))
        .unwrap_or_else(|| panic!("nobody noticed {sabotage:?}"))
}

macro_rules! mutants {
    ($($test:ident: $sabotage:ident;)+) => {$(
        #[test]
        fn $test() {
            let (seed, why) = caught(Sabotage::$sabotage);
            println!("{:?} was noticed at seed {seed}: {why}", Sabotage::$sabotage);
        }
    )+};
}

mutants! {
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
