//! What runs inside the server: functions in Lua.

use std::sync::LazyLock;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value, cmd};

use crate::words::Words;

/// The functions of all files, as each uses what stands before it.
const SOURCE: &str = concat!(
    include_str!("library/store.lua"),
    include_str!("library/sessions.lua"),
    include_str!("library/open.lua"),
    include_str!("library/resume.lua"),
    include_str!("library/single.lua"),
    include_str!("library/requests.lua"),
    include_str!("library/close.lua"),
);

static LIBRARY: LazyLock<Library> = LazyLock::new(|| Library::of(SOURCE));

/// A function that is called. Its words and answers are at the top of its file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Function {
    Open,
    Resume,
    Requests,
    Close,
}

const CALLED: [Function; 4] = [
    Function::Open,
    Function::Resume,
    Function::Requests,
    Function::Close,
];

/// The name of a function in the source.
fn name(function: Function) -> &'static str {
    match function {
        Function::Open => "open",
        Function::Resume => "resume",
        Function::Requests => "requests",
        Function::Close => "close",
    }
}

/// A call of a function.
pub(crate) fn call(function: Function, prefix: &str, words: &Words) -> Cmd {
    let called = LIBRARY.called(function);
    let bytes = "FCALL1".len() + called.len() + prefix.len() + words.bytes();
    let mut call = Cmd::with_capacity(words.len() + 4, bytes);
    call.arg("FCALL").arg(called).arg(1).arg(prefix);
    for word in words.iter() {
        call.arg(word);
    }
    call
}

/// The source with its name. A library keeps its name as long as it is the same, so those of two
/// versions of this crate are on a server side by side.
struct Library {
    name: String,
    text: String,
    /// By the number of the function.
    functions: [String; 4],
}

impl Library {
    fn of(source: &str) -> Self {
        let name = format!("lock_recipes_{:016x}", hash(source));
        let functions = CALLED.map(|it| format!("{name}_{}", self::name(it)));
        let mut text = format!("#!lua name={name}\n{source}");
        for (function, called) in CALLED.into_iter().zip(&functions) {
            // A lock must be released, and a session must expire or go on, on a server that is full,
            // too. It opens no session, and what creates is refused by the functions.
            let flags = match function {
                Function::Open => "",
                _ => "'allow-oom'",
            };
            text += &format!(
                "redis.register_function{{function_name = '{called}', callback = {}, \
                 flags = {{{flags}}}}}\n",
                self::name(function)
            );
        }
        Self {
            name,
            text,
            functions,
        }
    }

    fn called(&self, function: Function) -> &str {
        let [open, resume, requests, close] = &self.functions;
        match function {
            Function::Open => open,
            Function::Resume => resume,
            Function::Requests => requests,
            Function::Close => close,
        }
    }
}

/// Hands the library over to a server, which keeps it with its data.
pub(crate) async fn load(connection: &mut MultiplexedConnection) -> RedisResult<()> {
    // A server that is full loads none, and has it already if somebody has locks there.
    let mut find = cmd("FUNCTION");
    find.arg("LIST").arg("LIBRARYNAME").arg(&LIBRARY.name);
    let found: Vec<Value> = find.query_async(connection).await?;
    if !found.is_empty() {
        return Ok(());
    }
    let mut load = cmd("FUNCTION");
    // Others may be loading it, too.
    load.arg("LOAD").arg("REPLACE").arg(&LIBRARY.text);
    load.exec_async(connection).await
}

/// FNV-1a.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
