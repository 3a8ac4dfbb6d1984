//! The start of the interface.
//!
//! Input: the first call of the program. Output: the segment, the statics, and [`INTERFACE`] at the node.

use crate::node::user_handlers::{self, Interface, is_active};
use crate::process::host::CallHost;
use crate::process::process;
use crate::tempest::bulk::channels::{self, Bulk};
use crate::tempest::events;
use crate::tempest::faults;
use crate::tempest::messages::arrived;
use crate::tempest::owner::{self, TempestSettings};
use crate::tempest::pages::{segment, table};
use crate::tempest::timers;

/// What the node is told of this interface.
pub const INTERFACE: &Interface = &Interface {
    are_due: events::has_events,
    wants_poll: events::wants_poll,
    run: |node, enough| events::run_events(&mut CallHost::Node(node), enough),
    run_alone: || events::run_events(&mut CallHost::Alone, || false),
    may_run_here: owner::may_run_here,
    miss: faults::miss,
    on_message: events::on_message,
};

/// Makes the segment and the statics; once, before every other call.
pub fn start() {
    if is_active() {
        return;
    }
    let settings = process::header().map_or(TempestSettings::DEFAULT, |header| TempestSettings::of(&header));
    // SAFETY: once (`is_active`), after the start of the runtime.
    if let Err(e) = unsafe { segment::map() } {
        process::fail(format_args!("{e}"));
    }
    owner::own(settings);
    let made = table::start(settings.pages).and_then(|()| arrived::start());
    if let Err(e) = made {
        process::fail(format_args!("cannot reserve the memory of tempest.h: {e}"));
    }
    faults::start();
    timers::start();
    channels::start(Bulk::new(settings.direct_bulk));
    if process::nodes() == 1 {
        // SAFETY: the runtime has started.
        if let Err(e) = unsafe { crate::memory::segment::let_gathers_look() } {
            process::fail(format_args!("cannot change the runtime's page of constants: {e}"));
        }
    }
    user_handlers::activate(INTERFACE);
    owner::require_own_limits();
    if process::nodes() == 1 {
        process::guard_thread();
    }
}
