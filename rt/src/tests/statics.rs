//! What a node of a test has in place of the statics of `tempest.h`.

use crate::kernel::explored;
use crate::tempest::bulk::channels::{BULK, Bulk};
use crate::tempest::interface::INTERFACE;
use crate::tempest::messages::arrived::{MESSAGES, Messages};
use crate::tempest::owner::{SETTINGS, TempestSettings};
use crate::tempest::pages::table::{PAGES, PageTable};
use std::boxed::Box;

/// The statics of one node.
pub struct Statics {
    bulk: *mut Bulk,
    pages: *mut PageTable,
    messages: *mut Messages,
    settings: *mut TempestSettings,
    list: [(*const (), *mut ()); 4],
}

impl Statics {
    pub fn new(settings: TempestSettings, nodes: u32) -> Statics {
        let bulk = Box::into_raw(Box::new(Bulk::new(settings.direct_bulk)));
        let pages = Box::into_raw(Box::new(PageTable::new(settings.pages).unwrap()));
        let messages = Box::into_raw(Box::new(Messages::new(nodes).unwrap()));
        let settings = Box::into_raw(Box::new(settings));
        let list = [
            (BULK.key(), bulk.cast()),
            (PAGES.key(), pages.cast()),
            (MESSAGES.key(), messages.cast()),
            (SETTINGS.key(), settings.cast()),
        ];
        Statics { bulk, pages, messages, settings, list }
    }

    pub fn bulk(&self) -> &Bulk {
        // SAFETY: made in `new`; the node that uses it by a unique reference is not running.
        unsafe { &*self.bulk }
    }

    /// The node that runs on this thread from here on has these, or does not use the interface.
    ///
    /// # Safety
    /// They stay where they are, and no other node uses them, until this is called again.
    pub unsafe fn set(statics: Option<&Statics>) {
        let (user, list): (_, &[_]) = match statics {
            Some(statics) => (Some(core::ptr::from_ref(INTERFACE).cast()), &statics.list),
            None => (None, &[]),
        };
        // SAFETY: passed on from the caller.
        unsafe { explored::set_node(user, list) };
    }
}

impl Drop for Statics {
    fn drop(&mut self) {
        // SAFETY: made in `new`; nobody uses them any more.
        unsafe {
            drop((Box::from_raw(self.bulk), Box::from_raw(self.pages)));
            drop((Box::from_raw(self.messages), Box::from_raw(self.settings)));
        }
    }
}
