//! Which file a provider has open, whatever name it was opened by.

use everturn_provider::store::StoreIdentity;

use crate::file_identity::FileIdentity;
use crate::url::Location;

/// The identity of a database: that of the file that was opened, if it is an ordinary one.
pub(crate) fn of(location: &Location, file: Option<FileIdentity>) -> StoreIdentity {
    match (location, file) {
        (Location::File { path, .. }, Some(file)) => {
            file.name(path).map_or_else(StoreIdentity::unique, StoreIdentity::named)
        }
        (Location::File { .. } | Location::Memory, _) => StoreIdentity::unique(),
    }
}
