// Package scenarios plays gorm over its driver for PostgreSQL, which uses pgx. Where to connect to is
// in libpq's variables.
package scenarios

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"
)

type Author struct {
	ID      uint
	Name    string `gorm:"uniqueIndex"`
	Born    time.Time
	Rating  float64
	Secret  []byte
	Extra   map[string]any `gorm:"serializer:json"`
	Books   []Book
	Deleted gorm.DeletedAt
}

type Book struct {
	ID       uint
	AuthorID uint
	Title    string
	Pages    *int
}

var numbers atomic.Int64

// The ways gorm's driver sends statements.
var kinds = map[string]postgres.Config{
	"statements cached": {},
	"simple protocol":   {PreferSimpleProtocol: true},
}

func open(t *testing.T, config postgres.Config, more gorm.Config) *gorm.DB {
	t.Helper()
	config.DSN = "host=" + os.Getenv("PGHOST")
	more.Logger = logger.Default.LogMode(logger.Silent)
	more.TranslateError = false
	db, err := gorm.Open(postgres.New(config), &more)
	must(t, err)
	pool, err := db.DB()
	must(t, err)
	pool.SetMaxOpenConns(5)
	t.Cleanup(func() { pool.Close() })
	return db
}

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
	var told *pgconn.PgError
	if errors.As(err, &told) {
		return told.Code
	}
	return fmt.Sprint(err)
}

// A schema of one's own, in which the models have their tables. Its name is in the login's settings.
func fresh(t *testing.T, config postgres.Config, more gorm.Config) *gorm.DB {
	t.Helper()
	schema := fmt.Sprintf("gorm%d_%d", os.Getpid(), numbers.Add(1))
	owner := open(t, postgres.Config{}, gorm.Config{})
	must(t, owner.Exec("CREATE SCHEMA "+schema).Error)
	t.Cleanup(func() { owner.Exec("DROP SCHEMA " + schema + " CASCADE") })
	t.Setenv("PGOPTIONS", "")
	config.DSN = fmt.Sprintf("host=%s search_path=%s", os.Getenv("PGHOST"), schema)
	more.Logger = logger.Default.LogMode(logger.Silent)
	db, err := gorm.Open(postgres.New(config), &more)
	must(t, err)
	pool, err := db.DB()
	must(t, err)
	pool.SetMaxOpenConns(5)
	t.Cleanup(func() { pool.Close() })
	must(t, db.AutoMigrate(&Author{}, &Book{}))
	return db
}

func each(t *testing.T, play func(t *testing.T, db *gorm.DB)) {
	for name, config := range kinds {
		t.Run(name, func(t *testing.T) { play(t, fresh(t, config, gorm.Config{})) })
	}
	t.Run("prepared by gorm", func(t *testing.T) {
		play(t, fresh(t, postgres.Config{}, gorm.Config{PrepareStmt: true}))
	})
}

func TestCreateAndFind(t *testing.T) {
	each(t, func(t *testing.T, db *gorm.DB) {
		pages := 300
		born := time.Date(1999, 12, 31, 23, 59, 59, 1000, time.UTC)
		secret := []byte{0, 1, 255}
		author := Author{Name: "Grüße 'x' \\", Born: born, Rating: 0.5, Secret: secret,
			Extra: map[string]any{"a": "b"}, Books: []Book{{Title: "one", Pages: &pages}, {Title: "two"}}}
		must(t, db.Create(&author).Error)
		var got Author
		must(t, db.Preload("Books").First(&got, author.ID).Error)
		same(t, got.Name, author.Name)
		same(t, got.Born.UTC(), born)
		same(t, bytes.Equal(got.Secret, secret), true)
		same(t, got.Extra["a"], any("b"))
		same(t, len(got.Books), 2)
		same(t, *got.Books[0].Pages, 300)
		same(t, got.Books[1].Pages == nil, true)
	})
}

func TestIDsAreReturned(t *testing.T) {
	each(t, func(t *testing.T, db *gorm.DB) {
		for number := uint(1); number <= 20; number++ {
			author := Author{Name: fmt.Sprint(number)}
			must(t, db.Create(&author).Error)
			same(t, author.ID, number)
		}
	})
}

func TestBatches(t *testing.T) {
	each(t, func(t *testing.T, db *gorm.DB) {
		authors := make([]Author, 1000)
		for number := range authors {
			authors[number].Name = fmt.Sprint(number)
		}
		must(t, db.CreateInBatches(authors, 100).Error)
		seen := 0
		var part []Author
		must(t, db.FindInBatches(&part, 64, func(*gorm.DB, int) error { seen += len(part); return nil }).Error)
		same(t, seen, 1000)
	})
}

func TestUpdateAndDelete(t *testing.T) {
	each(t, func(t *testing.T, db *gorm.DB) {
		must(t, db.Create([]Author{{Name: "a"}, {Name: "b"}, {Name: "c"}}).Error)
		same(t, db.Model(&Author{}).Where("name <> ?", "a").Update("rating", gorm.Expr("rating + ?", 2)).RowsAffected, 2)
		same(t, db.Where("name = ?", "a").Delete(&Author{}).RowsAffected, 1)
		var count int64
		must(t, db.Model(&Author{}).Count(&count).Error)
		same(t, count, 2)
		must(t, db.Unscoped().Model(&Author{}).Count(&count).Error)
		same(t, count, 3)
		var names []string
		must(t, db.Model(&Author{}).Clauses(clause.OrderBy{Expression: clause.Expr{SQL: "name DESC"}}).Pluck("name", &names).Error)
		same(t, strings.Join(names, ""), "cb")
	})
}

func TestUpsert(t *testing.T) {
	each(t, func(t *testing.T, db *gorm.DB) {
		for round := 1; round <= 3; round++ {
			conflict := clause.OnConflict{Columns: []clause.Column{{Name: "name"}}, DoUpdates: clause.AssignmentColumns([]string{"rating"})}
			must(t, db.Clauses(conflict).Create(&Author{Name: "a", Rating: float64(round)}).Error)
		}
		var got Author
		must(t, db.First(&got, "name = ?", "a").Error)
		same(t, got.Rating, 3)
	})
}

func TestTransactionsAndSavepoints(t *testing.T) {
	each(t, func(t *testing.T, db *gorm.DB) {
		failure := errors.New("no")
		err := db.Transaction(func(tx *gorm.DB) error {
			must(t, tx.Create(&Author{Name: "kept"}).Error)
			inner := tx.Transaction(func(tx *gorm.DB) error {
				must(t, tx.Create(&Author{Name: "lost"}).Error)
				return failure
			})
			same(t, inner, failure)
			tx.SavePoint("here")
			same(t, state(tx.Exec("SELECT 1 / 0").Error), "22012")
			must(t, tx.RollbackTo("here").Error)
			return tx.Create(&Author{Name: "kept, too"}).Error
		})
		must(t, err)
		same(t, db.Transaction(func(tx *gorm.DB) error { tx.Create(&Author{Name: "gone"}); return failure }), failure)
		var count int64
		must(t, db.Model(&Author{}).Count(&count).Error)
		same(t, count, 2)
	})
}

func TestErrors(t *testing.T) {
	each(t, func(t *testing.T, db *gorm.DB) {
		must(t, db.Create(&Author{Name: "a"}).Error)
		same(t, state(db.Create(&Author{Name: "a"}).Error), "23505")
		same(t, state(db.Exec("SELECT nothing").Error), "42703")
		same(t, state(db.Exec("SELEC").Error), "42601")
		same(t, state(db.Raw("SELECT ?::text::int", "x").Scan(new(int)).Error), "22P02")
		same(t, errors.Is(db.First(&Author{}, "name = ?", "nobody").Error, gorm.ErrRecordNotFound), true)
	})
}

func TestLocks(t *testing.T) {
	each(t, func(t *testing.T, db *gorm.DB) {
		must(t, db.Create(&Author{Name: "a"}).Error)
		must(t, db.Transaction(func(tx *gorm.DB) error {
			var mine Author
			must(t, tx.Clauses(clause.Locking{Strength: "UPDATE"}).First(&mine, "name = ?", "a").Error)
			var others []Author
			locked := clause.Locking{Strength: "UPDATE", Options: "SKIP LOCKED"}
			must(t, db.Clauses(locked).Find(&others).Error)
			same(t, len(others), 0)
			return nil
		}))
	})
}

func TestMigrationsOfTablesInUse(t *testing.T) {
	each(t, func(t *testing.T, db *gorm.DB) {
		must(t, db.Create(&Author{Name: "a"}).Error)
		must(t, db.First(&Author{}).Error)
		must(t, db.Migrator().RenameColumn(&Author{}, "rating", "grade"))
		same(t, db.Migrator().HasColumn(&Author{}, "grade"), true)
		same(t, state(db.First(&Author{}, "rating = ?", 0).Error), "42703")
		must(t, db.Migrator().RenameColumn(&Author{}, "grade", "rating"))
		must(t, db.Exec("ALTER TABLE authors ADD COLUMN more int").Error)
		for range 10 {
			// A statement that was described before is described anew by the driver at the next use.
			err := db.First(&Author{}).Error
			if err != nil && state(err) != "0A000" {
				t.Fatal(err)
			}
		}
		must(t, db.First(&Author{}).Error)
		types, err := db.Migrator().ColumnTypes(&Author{})
		must(t, err)
		same(t, len(types), 8)
	})
}

func TestRowsAndRaw(t *testing.T) {
	each(t, func(t *testing.T, db *gorm.DB) {
		rows, err := db.Raw("SELECT n, repeat(md5(n::text), 10) FROM generate_series(1, ?) n", 20000).Rows()
		must(t, err)
		sum, number, text := 0, 0, ""
		for rows.Next() {
			must(t, rows.Scan(&number, &text))
			sum += number
			same(t, len(text), 320)
		}
		must(t, rows.Err())
		same(t, sum, 200010000)
		var both struct{ A, B int }
		must(t, db.Raw("SELECT CAST(@a AS int) AS a, CAST(@b AS int) AS b", map[string]any{"a": 1, "b": 2}).Scan(&both).Error)
		same(t, both.B, 2)
	})
}

func TestCancellation(t *testing.T) {
	each(t, func(t *testing.T, db *gorm.DB) {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		same(t, db.WithContext(ctx).Exec("SELECT pg_sleep(60)").Error != nil, true)
		for range 10 {
			must(t, db.Exec("SELECT 1").Error)
		}
	})
}

func TestConcurrency(t *testing.T) {
	each(t, func(t *testing.T, db *gorm.DB) {
		var all sync.WaitGroup
		for worker := range 8 {
			all.Go(func() {
				for round := range 20 {
					if err := db.Create(&Author{Name: fmt.Sprint(worker, " ", round)}).Error; err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		var count int64
		must(t, db.Model(&Author{}).Distinct("name").Count(&count).Error)
		same(t, count, 160)
	})
}

func TestOneConnection(t *testing.T) {
	each(t, func(t *testing.T, db *gorm.DB) {
		must(t, db.Connection(func(one *gorm.DB) error {
			must(t, one.Exec("SET work_mem = '5MB'").Error)
			must(t, one.Exec("CREATE TEMP TABLE own (n int)").Error)
			for round := range 10 {
				must(t, db.Exec("SET work_mem = '7MB'").Error)
				must(t, one.Exec("INSERT INTO own VALUES (?)", round).Error)
				var told string
				must(t, one.Raw("SHOW work_mem").Scan(&told).Error)
				same(t, told, "5MB")
			}
			return nil
		}))
	})
}
