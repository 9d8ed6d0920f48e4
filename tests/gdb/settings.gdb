# What every gdb session of the tests starts with.
set pagination off
set confirm off
# Two seconds, the default, are too short where many trials run at once.
set remotetimeout 60
set width 0
set debuginfod enabled off
set auto-load off
set startup-with-shell off
set print thread-events off
set print inferior-events off
set breakpoint pending on
set backtrace past-main on
set backtrace limit unlimited
