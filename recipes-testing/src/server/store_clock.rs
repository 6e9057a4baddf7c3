//! The clock of the locks' store on Redis, as an operator sees and sets it.

use super::error::ServerError;
use super::redis::RedisServer;

/// Adds to the numbers of `{prefix}:t`, and returns them.
const CHANGE: &str = "\
local kept = redis.call('GET', KEYS[1])
if not kept then return {} end
local numbers = { struct.unpack('<ddddd', kept) }
for i = 1, 5 do numbers[i] = numbers[i] + tonumber(ARGV[i]) end
redis.call('SET', KEYS[1], struct.pack('<ddddd', unpack(numbers, 1, 5)))
for i = 1, 5 do numbers[i] = string.format('%.0f', numbers[i]) end
return { unpack(numbers, 1, 5) }";

/// What a store on Redis remembers of time, in microseconds, or what is added to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreClock {
    /// The last transaction number.
    pub number: i64,
    /// The server's clock at the last call. To add to it is to set the server's clock back.
    pub last: i64,
    /// What the deadlines of sessions are compared with.
    pub own: i64,
    /// No session is due before this.
    pub due: i64,
    /// The most that the store's own clock advances between two calls.
    pub step: i64,
}

impl RedisServer {
    /// The clock of the store with this prefix; all zero if there is none.
    ///
    /// # Errors
    ///
    /// [`ServerError::Redis`] if the server refuses or does not answer.
    pub async fn store_clock(&self, prefix: &str) -> Result<StoreClock, ServerError> {
        self.change_store_clock(prefix, StoreClock::default()).await
    }

    /// Adds to the clock of the store with this prefix, and returns it.
    ///
    /// # Errors
    ///
    /// [`ServerError::Redis`] if the server refuses or does not answer.
    pub async fn change_store_clock(
        &self,
        prefix: &str,
        by: StoreClock,
    ) -> Result<StoreClock, ServerError> {
        let by = [by.number, by.last, by.own, by.due, by.step].map(|it| it.to_string());
        let key = format!("{{{prefix}}}:t");
        let mut words = vec!["EVAL", CHANGE, "1", &key];
        words.extend(by.iter().map(String::as_str));
        let numbers: Vec<i64> = self.command(&words).await?;
        Ok(match numbers[..] {
            [number, last, own, due, step] => StoreClock {
                number,
                last,
                own,
                due,
                step,
            },
            _ => StoreClock::default(),
        })
    }
}
