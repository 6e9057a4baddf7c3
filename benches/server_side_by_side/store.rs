//! What differs from store to store.

use futures::future::LocalBoxFuture;

use super::goals::Aim;
use super::options::Options;
use super::side::Side;

/// A store that is one server.
pub(crate) trait Store {
    fn page(&self) -> &'static Page;

    /// Starts one of its servers, by their order on the page, and the sides.
    fn start<'a>(&'a self, stage: usize, options: &'a Options) -> LocalBoxFuture<'a, Stage>;
}

/// What is said about a store's figures.
#[derive(Debug)]
pub(crate) struct Page {
    /// The name of the page, and of the file with all values.
    pub(crate) name: &'static str,
    pub(crate) introduction: &'static str,
    /// The case that is one round trip and nothing else.
    pub(crate) round_trip: &'static str,
    /// Says which server the table shows, for each kind of server. The first is the one that is
    /// counted, and has goals.
    pub(crate) stages: &'static [&'static str],
    /// What is counted.
    pub(crate) columns: &'static [&'static str],
    pub(crate) aims: &'static [Aim],
}

/// A server that runs, with what is compared on it.
pub(crate) struct Stage {
    pub(crate) server: Box<dyn Server>,
    /// By column.
    pub(crate) sides: Vec<Box<dyn Side>>,
    /// Lines about the server and the sides, each with its subject.
    pub(crate) facts: Vec<(&'static str, String)>,
}

/// It ends when it is dropped.
pub(crate) trait Server {
    fn url(&self) -> String;

    /// Begins to count, if the server does not always do it, or ends that.
    fn count(&mut self, _on: bool) -> LocalBoxFuture<'_, ()> {
        Box::pin(async {})
    }

    /// What it has counted so far, by column. What is a cost may depend on the side.
    fn counted(&self, side: &'static str) -> LocalBoxFuture<'_, Vec<f64>>;
}
