// pgx before a server, or a pooler, that lets nobody in without TLS and a password.
package secured

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const patience = 30 * time.Second

// connect logs in as app with what is different from a login that works.
func connect(different ...string) (*pgx.Conn, error) {
	settings := map[string]string{
		"host": "localhost", "port": os.Getenv("PORT"), "user": "app", "password": "hush",
		"dbname": "postgres", "sslmode": "verify-full", "sslrootcert": os.Getenv("AUTHORITY"),
	}
	for _, pair := range different {
		name, value, _ := strings.Cut(pair, "=")
		settings[name] = value
	}
	var text strings.Builder
	for name, value := range settings {
		fmt.Fprintf(&text, "%s='%s' ", name, value)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return pgx.Connect(ctx, text.String())
}

func serves(t *testing.T, different ...string) {
	t.Helper()
	conn, err := connect(different...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for number := range 10 {
		var answer int
		err := conn.QueryRow(context.Background(), "select $1::int + 1", number).Scan(&answer)
		if err != nil || answer != number+1 {
			t.Fatal(answer, err)
		}
	}
}

func refuses(t *testing.T, reason string, different ...string) {
	t.Helper()
	conn, err := connect(different...)
	if err == nil {
		conn.Close(context.Background())
		t.Fatal("it was let in")
	}
	if !strings.Contains(err.Error(), reason) {
		t.Fatalf("refused for another reason than %q: %v", reason, err)
	}
}

func TestVerifyFull(t *testing.T)        { serves(t) }
func TestRequire(t *testing.T)           { serves(t, "sslmode=require") }
func TestBindingRequired(t *testing.T)   { serves(t, "channel_binding=require") }
func TestBindingDisabled(t *testing.T)   { serves(t, "channel_binding=disable") }
func TestSimpleProtocol(t *testing.T)    { serves(t, "default_query_exec_mode=simple_protocol") }
func TestVerifyCaByAddress(t *testing.T) { serves(t, "sslmode=verify-ca", "host=127.0.0.1") }

func TestWrongName(t *testing.T) { refuses(t, "certificate", "host=127.0.0.1") }
func TestWrongAuthority(t *testing.T) {
	refuses(t, "certificate", "sslrootcert="+os.Getenv("STRANGER"))
}
func TestWrongPassword(t *testing.T) { refuses(t, "authentication failed", "password=wrong") }
func TestUnknownUser(t *testing.T)   { refuses(t, "", "user=nobody") }
func TestWithoutTls(t *testing.T)    { refuses(t, "FATAL", "sslmode=disable") }

func TestLargeResult(t *testing.T) {
	conn, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var text string
	query := "select string_agg(n::text, ',') from generate_series(1, 1000000) n"
	if err := conn.QueryRow(context.Background(), query).Scan(&text); err != nil {
		t.Fatal(err)
	}
	if len(text) != 6888895 {
		t.Fatal(len(text))
	}
}

func TestCancel(t *testing.T) {
	conn, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), "select pg_sleep(600)")
		done <- err
	}()
	for {
		if err := conn.PgConn().CancelRequest(context.Background()); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-done:
			if err == nil || !strings.Contains(err.Error(), "57014") {
				t.Fatal(err)
			}
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}
