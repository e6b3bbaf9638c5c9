// Tells systemd (Type=notify) what the server does; nothing where no NOTIFY_SOCKET is set.
#pragma once

namespace mlxcel::app {

/// "READY=1", "STOPPING=1", "STATUS=…". Failure is silent: the server runs without its supervisor.
void notify_supervisor(const char* state);

}  // namespace mlxcel::app
