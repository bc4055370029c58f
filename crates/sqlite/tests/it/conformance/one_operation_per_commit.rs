//! On a file, with one operation per commit.

use super::FileFactory;

everturn_conformance::provider_tests!(FileFactory::new(1));
