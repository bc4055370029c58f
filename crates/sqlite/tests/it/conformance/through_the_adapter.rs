//! What the adapter does itself, and what depends on it.

use super::PlainFactory;

everturn_conformance::admin_cases!(PlainFactory::new());
everturn_conformance::as_store_cases!(PlainFactory::new());
everturn_conformance::delete_cases!(PlainFactory::new());
everturn_conformance::dropped_writes_cases!(PlainFactory::new());
everturn_conformance::locks_cases!(PlainFactory::new());
everturn_conformance::plain_verbs_cases!(PlainFactory::new());
everturn_conformance::read_orchestration_name_cases!(PlainFactory::new());
everturn_conformance::read_status_cases!(PlainFactory::new());
everturn_conformance::renew_cases!(PlainFactory::new());
everturn_conformance::submit_cases!(PlainFactory::new());
everturn_conformance::tokens_cases!(PlainFactory::new());
everturn_conformance::warm_cases!(PlainFactory::new());
everturn_conformance::watch_cases!(PlainFactory::new());
