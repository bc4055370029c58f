//! On a file, with up to 512 operations per commit.

use super::FileFactory;

everturn_conformance::provider_tests!(FileFactory::new(512));
