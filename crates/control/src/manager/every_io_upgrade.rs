//! An upgrade of a pool's log to slots, with each of its accesses going wrong ([`super::every_io`]).

use super::every_io::{Daemon, Moment, PACKED, PLAIN, every_io, used};
use api::ssd_layout::SsdLayout;
use api::{Action, Answer};

fn layout(daemon: &Daemon) -> String {
    match daemon.manager.handle(Action::PoolShow { name: "p".into() }) {
        Ok(Answer::Pool(pool)) => pool.layout,
        other => panic!("the pool is there: {other:?}"),
    }
}

fn upgrade(daemon: &Daemon) -> Result<(), String> {
    daemon.ask(Action::PoolUpgrade { name: "p".into() })
}

#[test]
fn an_upgrade_fails_at_every_access() {
    for kind in [PLAIN, PACKED] {
        let (before, model) = used(kind);
        let action = |daemon: &Daemon| {
            assert_eq!(layout(daemon), SsdLayout::Log.name());
            daemon.ask(Action::PoolUpgradeCheck { name: "p".into() })?;
            let result = upgrade(daemon);
            assert!(result.is_err() || layout(daemon) == SsdLayout::Slots.name());
            result
        };
        let again = |daemon: &Daemon| match layout(daemon) == SsdLayout::Slots.name() {
            false => upgrade(daemon),
            true => {
                let refused = upgrade(daemon).expect_err("there is nothing to upgrade");
                assert!(refused.contains("lie in slots already"), "{refused}");
                Ok(())
            }
        };
        every_io(&before, &model, Moment::Busy, &action, &again);
    }
}
