"""The guard: a small process that launches and owns the commands of one worker and kills them when it fails.

It must not know pgcron_runner: this folder is run by its path, isolated and without site-packages, so that it
starts in some 20 ms and needs the standard library only. (The worker imports it for the wire format and the
marks.) `serve` is the loop; `wire` and `orders` are what is said, `launches` whose a process is, `killing` how it dies,
`spawn` how it is started, `memory` and `cgroups` what it may use, `table` what the operating system tells.

    worker --- launch (with the pipe for the output), adopt, signal, kill, feed ---> guard
    worker <--------- ready, started or failed, memory, exited, gone, fed ---------- guard

A launch is answered by `failed`, or by `started`, then `exited` (the command itself has ended), then `gone`
(nothing that it left behind lives any more); an `exited` that tells of no leftovers stands for `gone` too. Instead of
launching, the guard can adopt a process that has become its child, as an orphan of one of its commands. `memory` comes
each time that a command is seen to use more than its limit: what follows is the worker's to decide.

How a process is known to be a command's, even one that called setsid, forked twice and cleared its
environment: the guard is a child subreaper, so every orphan becomes its child; and before each launch it sets
its own soft limit RLIMIT_LOCKS, which no kernel since 2.4.25 enforces, to a number of that launch. The limit
is inherited over fork, setsid and exec, anyone may read it in /proc/<pid>/limits, and nothing but `ulimit -x`
or a PAM login changes it. (An environment marker would be hidden by `env -i`, setproctitle and setuid
programs.) Parents and sessions do for the rest. macOS has no subreapers, no marks and no /proc: there a process that
left both its parent and its group is not found, nothing is adopted, and memory limits are not watched.

What no guard kills: work that was handed to another daemon (docker, at, systemd-run) or host, programs of other users
where the worker is not root (they are named in the run's outcome), and all of it if worker and guard are both stopped
or killed at the same moment: there the service manager must do it (systemd: KillMode=control-group).
"""
