// Package scenarios plays bun over pgx's driver for database/sql and over bun's own, pgdriver. Where
// to connect to is in libpq's variables.
package scenarios

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/driver/pgdriver"
)

type Author struct {
	bun.BaseModel `bun:"table:authors"`

	ID     int64  `bun:",pk,autoincrement"`
	Name   string `bun:",unique"`
	Born   time.Time
	Rating float64
	Secret []byte
	Tags   []string       `bun:",array"`
	Extra  map[string]any `bun:"type:jsonb"`
	Books  []*Book        `bun:"rel:has-many,join:id=author_id"`
}

type Book struct {
	ID       int64 `bun:",pk,autoincrement"`
	AuthorID int64
	Title    string
}

var (
	ctx     = context.Background()
	numbers atomic.Int64
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func same[T comparable](t *testing.T, got, wanted T) {
	t.Helper()
	if got != wanted {
		t.Fatalf("got %v, wanted %v", got, wanted)
	}
}

func state(err error) string {
	var pgx *pgconn.PgError
	var own pgdriver.Error
	switch {
	case errors.As(err, &pgx):
		return pgx.Code
	case errors.As(err, &own):
		return own.Field('C')
	}
	return fmt.Sprint(err)
}

func address() string {
	return fmt.Sprintf("postgres://%s@%s:%s/%s?sslmode=disable", os.Getenv("PGUSER"), os.Getenv("PGHOST"),
		os.Getenv("PGPORT"), os.Getenv("PGDATABASE"))
}

func connector() *sql.DB {
	return sql.OpenDB(pgdriver.NewConnector(pgdriver.WithDSN(address()), pgdriver.WithTimeout(60*time.Second)))
}

// Plays with each driver, on tables in a schema of its own.
func each(t *testing.T, play func(t *testing.T, db *bun.DB)) {
	for _, driver := range []string{"pgx", "pgdriver"} {
		t.Run(driver, func(t *testing.T) {
			schema := fmt.Sprintf("bun%d_%d", os.Getpid(), numbers.Add(1))
			owner := connector()
			defer owner.Close()
			_, err := owner.Exec("CREATE SCHEMA " + schema)
			must(t, err)
			defer owner.Exec("DROP SCHEMA " + schema + " CASCADE")
			var pool *sql.DB
			if driver == "pgx" {
				pool, err = sql.Open("pgx", address()+"&search_path="+schema)
				must(t, err)
			} else {
				pool = sql.OpenDB(pgdriver.NewConnector(pgdriver.WithDSN(address()),
					pgdriver.WithTimeout(60*time.Second),
					pgdriver.WithConnParams(map[string]any{"search_path": schema})))
			}
			defer pool.Close()
			pool.SetMaxOpenConns(5)
			db := bun.NewDB(pool, pgdialect.New())
			for _, model := range []any{(*Author)(nil), (*Book)(nil)} {
				_, err := db.NewCreateTable().Model(model).Exec(ctx)
				must(t, err)
			}
			play(t, db)
		})
	}
}

func add(t *testing.T, db bun.IDB, name string) *Author {
	t.Helper()
	author := &Author{Name: name}
	_, err := db.NewInsert().Model(author).Exec(ctx)
	must(t, err)
	return author
}

func count(t *testing.T, db bun.IDB) int {
	t.Helper()
	found, err := db.NewSelect().Model((*Author)(nil)).Count(ctx)
	must(t, err)
	return found
}

func TestInsertAndSelect(t *testing.T) {
	each(t, func(t *testing.T, db *bun.DB) {
		author := Author{Name: "Grüße 'x' \\ ?", Born: time.Date(1999, 12, 31, 23, 59, 59, 1000, time.UTC),
			Rating: 0.5, Secret: []byte{0, 1, 255}, Tags: []string{"a", `b"\,`}, Extra: map[string]any{"a": "b"}}
		_, err := db.NewInsert().Model(&author).Exec(ctx)
		must(t, err)
		books := []*Book{{AuthorID: author.ID, Title: "one"}, {AuthorID: author.ID, Title: "two"}}
		_, err = db.NewInsert().Model(&books).Exec(ctx)
		must(t, err)
		var got Author
		must(t, db.NewSelect().Model(&got).Relation("Books").Where("id = ?", author.ID).Scan(ctx))
		same(t, got.Name, author.Name)
		same(t, got.Born.UTC(), author.Born)
		same(t, bytes.Equal(got.Secret, author.Secret), true)
		same(t, strings.Join(got.Tags, " "), "a b\"\\,")
		same(t, got.Extra["a"], any("b"))
		same(t, len(got.Books), 2)
	})
}

func TestIDsAreReturned(t *testing.T) {
	each(t, func(t *testing.T, db *bun.DB) {
		for number := int64(1); number <= 20; number++ {
			same(t, add(t, db, fmt.Sprint(number)).ID, number)
		}
	})
}

func TestBulk(t *testing.T) {
	each(t, func(t *testing.T, db *bun.DB) {
		authors := make([]Author, 1000)
		for number := range authors {
			authors[number].Name = fmt.Sprint(number)
		}
		_, err := db.NewInsert().Model(&authors).Exec(ctx)
		must(t, err)
		same(t, authors[999].ID-authors[0].ID, 999)
		values := db.NewValues(&[]Author{{ID: authors[0].ID, Rating: 2}, {ID: authors[1].ID, Rating: 3}})
		result, err := db.NewUpdate().With("_data", values).Model((*Author)(nil)).TableExpr("_data").
			Set("rating = _data.rating").Where("author.id = _data.id").Exec(ctx)
		must(t, err)
		rows, _ := result.RowsAffected()
		same(t, rows, 2)
	})
}

func TestUpsertAndDelete(t *testing.T) {
	each(t, func(t *testing.T, db *bun.DB) {
		for round := range 3 {
			_, err := db.NewInsert().Model(&Author{Name: "a", Rating: float64(round)}).
				On("CONFLICT (name) DO UPDATE").Set("rating = EXCLUDED.rating").Exec(ctx)
			must(t, err)
		}
		var rating float64
		must(t, db.NewDelete().Model((*Author)(nil)).Where("name = ?", "a").Returning("rating").Scan(ctx, &rating))
		same(t, rating, 2)
		same(t, count(t, db), 0)
	})
}

func TestTransactionsAndSavepoints(t *testing.T) {
	each(t, func(t *testing.T, db *bun.DB) {
		failure := errors.New("no")
		must(t, db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			add(t, tx, "kept")
			same(t, tx.RunInTx(ctx, nil, func(ctx context.Context, inner bun.Tx) error {
				add(t, inner, "lost")
				_, err := inner.ExecContext(ctx, "SELECT 1 / 0")
				same(t, state(err), "22012")
				return failure
			}), failure)
			add(t, tx, "kept, too")
			return nil
		}))
		same(t, db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error { add(t, tx, "gone"); return failure }), failure)
		same(t, count(t, db), 2)
	})
}

func TestIsolation(t *testing.T) {
	each(t, func(t *testing.T, db *bun.DB) {
		tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable})
		must(t, err)
		defer tx.Rollback()
		var told string
		must(t, tx.QueryRowContext(ctx, "SHOW transaction_isolation").Scan(&told))
		same(t, told, "serializable")
		same(t, count(t, tx), 0)
		add(t, db, "unseen")
		same(t, count(t, tx), 0)
	})
}

func TestPreparedStatements(t *testing.T) {
	each(t, func(t *testing.T, db *bun.DB) {
		statement, err := db.PrepareContext(ctx, "SELECT $1::int + $2::int")
		must(t, err)
		defer statement.Close()
		var all sync.WaitGroup
		for worker := range 8 {
			all.Go(func() {
				for round := range 30 {
					sum := 0
					if err := statement.QueryRow(worker, round).Scan(&sum); err != nil || sum != worker+round {
						t.Error(err, sum)
					}
				}
			})
		}
		all.Wait()
	})
}

func TestErrors(t *testing.T) {
	each(t, func(t *testing.T, db *bun.DB) {
		add(t, db, "a")
		_, err := db.NewInsert().Model(&Author{Name: "a"}).Exec(ctx)
		same(t, state(err), "23505")
		for text, wanted := range map[string]string{"SELECT nothing": "42703", "SELEC": "42601", "SELECT 'x'::int": "22P02"} {
			_, err := db.ExecContext(ctx, text)
			same(t, state(err), wanted)
		}
		same(t, errors.Is(db.NewSelect().Model(new(Author)).Where("name = 'b'").Scan(ctx), sql.ErrNoRows), true)
	})
}

func TestBigResults(t *testing.T) {
	each(t, func(t *testing.T, db *bun.DB) {
		rows, err := db.QueryContext(ctx, "SELECT n, repeat(md5(n::text), 10) FROM generate_series(1, 20000) n")
		must(t, err)
		defer rows.Close()
		sum, number, text := 0, 0, ""
		for rows.Next() {
			must(t, rows.Scan(&number, &text))
			sum += number
			same(t, len(text), 320)
		}
		must(t, rows.Err())
		same(t, sum, 200010000)
	})
}

func TestCancellation(t *testing.T) {
	each(t, func(t *testing.T, db *bun.DB) {
		soon, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		_, err := db.ExecContext(soon, "SELECT pg_sleep(60)")
		same(t, err != nil, true)
		for range 10 {
			_, err := db.ExecContext(ctx, "SELECT 1")
			must(t, err)
		}
	})
}

func TestOneConnection(t *testing.T) {
	each(t, func(t *testing.T, db *bun.DB) {
		one, err := db.Conn(ctx)
		must(t, err)
		defer one.Close()
		exec := func(text string, values ...any) {
			_, err := one.ExecContext(ctx, text, values...)
			must(t, err)
		}
		exec("SET work_mem = '5MB'")
		exec("CREATE TEMP TABLE own (n int)")
		for round := range 10 {
			_, err := db.ExecContext(ctx, "SET work_mem = '7MB'")
			must(t, err)
			exec("INSERT INTO own VALUES (?)", round)
			var told string
			must(t, one.QueryRowContext(ctx, "SHOW work_mem").Scan(&told))
			same(t, told, "5MB")
		}
	})
}

func TestCopy(t *testing.T) {
	pool := connector()
	defer pool.Close()
	db := bun.NewDB(pool, pgdialect.New())
	one, err := db.Conn(ctx)
	must(t, err)
	defer one.Close()
	_, err = one.ExecContext(ctx, "CREATE TEMP TABLE copied (id int, word text)")
	must(t, err)
	var lines strings.Builder
	for number := range 1000 {
		fmt.Fprintf(&lines, "%d\tword %d\n", number, number)
	}
	result, err := pgdriver.CopyFrom(ctx, one, strings.NewReader(lines.String()), "COPY copied FROM STDIN")
	must(t, err)
	rows, _ := result.RowsAffected()
	same(t, rows, 1000)
	var out bytes.Buffer
	_, err = pgdriver.CopyTo(ctx, one, &out, "COPY copied TO STDOUT")
	must(t, err)
	same(t, out.String(), lines.String())
}

func TestListener(t *testing.T) {
	pool := connector()
	defer pool.Close()
	db := bun.NewDB(pool, pgdialect.New())
	channel := fmt.Sprintf("bun%d_%d", os.Getpid(), numbers.Add(1))
	listener := pgdriver.NewListener(db)
	defer listener.Close()
	must(t, listener.Listen(ctx, channel))
	heard := listener.Channel()
	next := func(patience time.Duration) string {
		select {
		case one := <-heard:
			return one.Payload
		case <-time.After(patience):
			return "nothing"
		}
	}
	// The driver does not wait for the answer to LISTEN.
	for round := 0; ; round++ {
		same(t, round < 200, true)
		must(t, pgdriver.Notify(ctx, db, channel, "begin"))
		if next(100*time.Millisecond) == "begin" {
			break
		}
	}
	for number := range 20 {
		must(t, pgdriver.Notify(ctx, db, channel, fmt.Sprint(number)))
	}
	for number := range 20 {
		got := "begin"
		for got == "begin" {
			got = next(20 * time.Second)
		}
		same(t, got, fmt.Sprint(number))
	}
	must(t, listener.Unlisten(ctx, channel))
}
