//! placeholder
use super::document::Document;
/// placeholder
pub fn write(_d: &Document) -> Vec<u8> {
    Vec::new()
}
