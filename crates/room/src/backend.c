/*
 * backend.c: for the tests of this crate: what a backend writes into its line (extension/attend.c
 * and extension/orders.c).
 */
#include "lobby.h"

extern void backend_serve(const Lobby *lobby, uint32_t me, uint32_t place, uint64_t transaction);
extern void backend_act(const Lobby *lobby, uint32_t me, uint32_t activity);
extern void backend_answer(const Lobby *lobby, uint32_t me, uint32_t doing, uint64_t since_us);
extern uint64_t backend_read(const Lobby *lobby, uint32_t me, uint32_t order);

void
backend_serve(const Lobby *lobby, uint32_t me, uint32_t place, uint64_t transaction)
{
    lobby_backend(lobby, me)->transaction = transaction;
    lobby_backend(lobby, me)->place = place + 1;
}

void
backend_act(const Lobby *lobby, uint32_t me, uint32_t activity)
{
    lobby_backend(lobby, me)->activity = activity;
}

void
backend_answer(const Lobby *lobby, uint32_t me, uint32_t doing, uint64_t since_us)
{
    lobby_backend(lobby, me)->answer = since_us << 2 | doing;
}

/* The transaction for which there is this order. */
uint64_t
backend_read(const Lobby *lobby, uint32_t me, uint32_t order)
{
    const LobbyBackend *line = lobby_backend(lobby, me);

    switch ((LobbyOrder) order) {
        case LOBBY_CANCEL:
            return line->cancel;
        case LOBBY_END:
            return line->end;
        case LOBBY_ASK:
            return line->ask;
    }
    return 0;
}
