//! Random sequences of calls, compared with the in-memory provider.

use crate::conformance::SchemaFactory;

everturn_conformance::model_test!(SchemaFactory::new(), cases: 16);
