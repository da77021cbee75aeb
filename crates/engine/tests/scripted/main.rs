//! The engine against scripted peers: clients and servers say what they are told to say, and every
//! byte that comes back is compared. No socket, no clock, no thread.

extern crate weir_engine as engine;

mod asking;
mod backslashes;
mod cancel;
mod carried;
mod channel_binding;
mod control;
mod crowded;
mod defaults;
mod doubtful;
mod drain;
mod dying;
mod handover;
mod hba;
mod judged;
mod limits;
mod listen;
mod local;
mod login;
mod meanings;
mod messages;
mod numbers;
mod openings;
mod outdated;
mod peers;
mod pooling;
mod prepared;
mod protocol;
mod relay;
mod reload;
mod renewal;
mod report;
mod resend;
mod rig;
mod scram;
mod secured;
mod shares;
mod timeouts;
mod tracked;
mod unnamed;
mod unverified;
mod welcome;
mod workers;
