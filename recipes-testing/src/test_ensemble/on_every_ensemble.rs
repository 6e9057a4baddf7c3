//! Registers a behaviour as a test on each ensemble.

/// Tests behaviours in memory, on a paused clock, and on a real server of each store.
///
/// A behaviour is an `async fn` of this file that takes a [`TestEnsemble`](crate::TestEnsemble) of its own. The macro
/// registers it: the tests are `behaviour::in_memory`, `behaviour::on_a_real_server`,
/// `behaviour::on_redis`, `behaviour::on_postgres` and `behaviour::on_mariadb`. Behaviours of ZooKeeper
/// alone come after `zookeeper:`. Those that count watches on the server come after `watches:`: sessions
/// on MariaDB only look. One that is not registered is dead code, of which the compiler warns.
///
/// ```ignore
/// on_every_ensemble!(holder_excludes_others, waiter_is_next);
///
/// async fn holder_excludes_others(ensemble: TestEnsemble) {
///     let session = ensemble.session().await;
///     // ...
/// }
/// ```
#[macro_export]
macro_rules! on_every_ensemble {
    (zookeeper: $($behaviour:ident),+ $(,)?) => {
        $crate::on_every_ensemble!(@each [$($behaviour)+] [on_a_real_server]);
    };
    (watches: $($behaviour:ident),+ $(,)?) => {
        $crate::on_every_ensemble!(@each [$($behaviour)+] [on_a_real_server on_redis on_postgres]);
    };
    (@each [$($behaviour:ident)+] $servers:tt) => {
        $($crate::on_every_ensemble!(@one $behaviour $servers);)+
    };
    (@one $behaviour:ident $servers:tt) => {
        mod $behaviour {
            use super::$behaviour;

            $crate::on_every_ensemble!(@tests $behaviour $servers);
        }
    };
    (@tests $behaviour:ident [$($server:ident)+]) => {
        #[tokio::test(start_paused = true)]
        async fn in_memory() {
            $behaviour($crate::TestEnsemble::in_memory()).await;
        }

        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $server() {
                $behaviour($crate::TestEnsemble::$server().await).await;
            }
        )+
    };
    ($($behaviour:ident),+ $(,)?) => {
        $crate::on_every_ensemble!(
            @each [$($behaviour)+] [on_a_real_server on_redis on_postgres on_mariadb]
        );
    };
}
