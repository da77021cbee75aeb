/*
 * notify.c: notifications that a guest has sent and gets itself. They carry the process id that the
 * guest was told at its login, by which drivers recognize them, and not that of this backend.
 */
#include "attend.h"

#include <arpa/inet.h>

#include "miscadmin.h"

/* Sends a NotificationResponse in place of core's. False: core's is to be sent. */
bool
notify_put(const char *body, size_t len)
{
    uint32 place;
    const Lobby *lobby = attend_lobby(&place);
    uint32 sender;
    uint32 told;
    char *changed;

    if (lobby == NULL || len < sizeof(sender))
        return false;
    memcpy(&sender, body, sizeof(sender));
    told = lobby_place(lobby, place)->process;
    if (told == 0 || ntohl(sender) != (uint32) MyProcPid)
        return false;
    changed = palloc(len);
    memcpy(changed, body, len);
    told = htonl(told);
    memcpy(changed, &told, sizeof(told));
    (void) report_put('A', changed, len);
    pfree(changed);
    return true;
}
