//! Special objects of the target, read by `qXfer`.

use crate::client::Client;
use crate::error::Error;
use crate::library::Library;

impl Client {
    /// Reads a whole object (`qXfer:object:read:annex`).
    pub fn transfer(&mut self, object: &str, annex: &str) -> Result<Vec<u8>, Error> {
        todo!()
    }
    /// The loaded libraries (`libraries-svr4`).
    pub fn libraries(&mut self) -> Result<Vec<Library>, Error> {
        todo!()
    }
    /// The auxiliary vector, without its end mark.
    pub fn auxv(&mut self) -> Result<Vec<(u64, u64)>, Error> {
        todo!()
    }
    /// Path of the program on the target; `None` where the server does not say.
    pub fn exec_file(&mut self, pid: Option<u64>) -> Result<Option<String>, Error> {
        todo!()
    }
}
