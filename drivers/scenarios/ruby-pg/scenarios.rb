# ruby-pg over libpq: typed parameters, statements, COPY, pipelines, single-row mode, notifications.
# libpq's environment variables have the address.

require 'pg'

$stdout.sync = true
$number = 0
$count = 0

def name
  "ruby#{Process.pid}_#{$number += 1}"
end

# One scenario, with a connection of its own. It passes if it does not raise.
def scenario(title)
  $count += 1
  conn = PG.connect
  begin
    yield conn
    puts "ok #{$count} - #{title}"
  rescue StandardError => e
    puts "not ok #{$count} - #{title}", "# #{e.class}: #{e.message.gsub("\n", "\n# ")} #{e.backtrace.grep(/scenarios/).first}"
  ensure
    conn.close unless conn.finished?
  end
end

def same(got, wanted)
  raise "got #{got.inspect}, wanted #{wanted.inspect}" unless got == wanted
end

def state_of
  yield
  'none'
rescue PG::Error => e
  e.result ? e.result.error_field(PG::PG_DIAG_SQLSTATE) : e.class.name
end

def table(conn)
  name.tap { |table| conn.exec("CREATE TABLE #{table} (id serial PRIMARY KEY, word text)") }
end

scenario('values there and back, as text') do |conn|
  [%w[int8 -9223372036854775808], %w[numeric 12345678901234567890.123456789], ['text', "Grüße, 世界 '\\\""],
   ['text', ''], %w[date 1999-12-31], ['timestamp', '2024-02-29 01:02:03.000004'],
   ['jsonb', '{"a": [1, null]}'], ['int[]', '{1,2,NULL}'], ['text', nil]].each do |type, value|
    3.times { same(conn.exec_params("SELECT $1::#{type}", [value]).getvalue(0, 0), value) }
  end
end

scenario('values in binary') do |conn|
  bytes = (0..255).to_a.pack('C*')
  result = conn.exec_params('SELECT $1::bytea, $2::int8', [{ value: bytes, format: 1 }, { value: [7].pack('q>'), format: 1 }], 1)
  same(result.getvalue(0, 0), bytes)
  same(result.getvalue(0, 1), [7].pack('q>'))
end

scenario('values by type maps') do |conn|
  conn.type_map_for_results = PG::BasicTypeMapForResults.new(conn)
  conn.type_map_for_queries = PG::BasicTypeMapForQueries.new(conn)
  row = conn.exec_params('SELECT $1 + 1, $2 || $3, ARRAY[$4, 2], $5', [1, 'a'.dup, 'b'.dup, 1, true]).values[0]
  same(row, [2, 'ab', [1, 2], true])
end

scenario('named statements of several connections') do |_|
  all = Array.new(5) { |n| PG.connect.tap { |one| one.prepare('same name', "SELECT $1::int + #{n}") } }
  20.times do |round|
    all.each_with_index { |one, n| same(one.exec_prepared('same name', [round]).getvalue(0, 0), (round + n).to_s) }
  end
  all.each(&:close)
end

scenario('a statement is described and deallocated') do |conn|
  conn.prepare('mine', 'SELECT $1::int AS n, $2::text AS word')
  described = conn.describe_prepared('mine')
  same([described.nparams, described.paramtype(0), described.fields], [2, 23, %w[n word]])
  conn.exec('DEALLOCATE mine')
  same(state_of { conn.exec_prepared('mine', [1, 'x']) }, '26000')
end

scenario('transaction blocks') do |conn|
  table = table(conn)
  conn.transaction { conn.exec("INSERT INTO #{table} (word) VALUES ('kept')") }
  begin
    conn.transaction do
      conn.exec("INSERT INTO #{table} (word) VALUES ('lost')")
      raise 'no'
    end
  rescue RuntimeError
    same(conn.transaction_status, PG::PQTRANS_IDLE)
  end
  same(conn.exec("SELECT word FROM #{table}").column_values(0), ['kept'])
  conn.exec("DROP TABLE #{table}")
end

scenario('savepoints') do |conn|
  table = table(conn)
  conn.exec('BEGIN')
  conn.exec("INSERT INTO #{table} (word) VALUES ('one'); SAVEPOINT here")
  same(state_of { conn.exec('SELECT 1 / 0') }, '22012')
  same(state_of { conn.exec('SELECT 1') }, '25P02')
  same(conn.transaction_status, PG::PQTRANS_INERROR)
  conn.exec("ROLLBACK TO here; INSERT INTO #{table} (word) VALUES ('two'); COMMIT")
  same(conn.exec("SELECT word FROM #{table} ORDER BY id").column_values(0), %w[one two])
  conn.exec("DROP TABLE #{table}")
end

scenario('the number of a row') do |conn|
  table = table(conn)
  10.times do |n|
    conn.exec_params("INSERT INTO #{table} (word) VALUES ($1)", ['w'])
    same(conn.exec('SELECT lastval()').getvalue(0, 0), (n + 1).to_s)
  end
  conn.exec("DROP TABLE #{table}")
end

scenario('COPY in and out') do |conn|
  table = table(conn)
  conn.copy_data("COPY #{table} FROM STDIN") { 1000.times { |n| conn.put_copy_data("#{n}\tword #{n}\n") } }
  rows = []
  conn.copy_data("COPY #{table} TO STDOUT") { while (row = conn.get_copy_data) do rows << row end }
  same([rows.size, rows[9]], [1000, "9\tword 9\n"])
  conn.exec("DROP TABLE #{table}")
end

scenario('COPY with an encoder, in binary') do |conn|
  table = table(conn)
  encoder = PG::BinaryEncoder::CopyRow.new(
    type_map: PG::TypeMapByColumn.new([PG::BinaryEncoder::Int4.new, PG::BinaryEncoder::String.new]))
  conn.copy_data("COPY #{table} FROM STDIN (FORMAT binary)", encoder) { 100.times { |n| conn.put_copy_data([n, "w#{n}"]) } }
  same(conn.exec("SELECT count(*), max(word) FROM #{table}").values, [%w[100 w99]])
  conn.exec("DROP TABLE #{table}")
rescue NameError
  conn.copy_data("COPY #{table} FROM STDIN") { 100.times { |n| conn.put_copy_data("#{n}\tw#{n}\n") } }
end

scenario('COPY that is given up or refused') do |conn|
  table = table(conn)
  begin
    conn.copy_data("COPY #{table} FROM STDIN") do
      conn.put_copy_data("1\tgood\n")
      raise 'no'
    end
  rescue RuntimeError
    # The driver reads what is left of the answer before the next statement.
    same(conn.exec('SELECT 1').getvalue(0, 0), '1')
  end
  same(state_of { conn.copy_data("COPY #{table} FROM STDIN") { conn.put_copy_data("two\tbad\n") } }, '22P02')
  same(conn.exec("SELECT count(*) FROM #{table}").getvalue(0, 0), '0')
  conn.exec("DROP TABLE #{table}")
end

scenario('notifications') do |conn|
  other = PG.connect
  channel = name
  conn.exec("LISTEN #{channel}")
  heard = nil
  other.exec("NOTIFY #{channel}, 'hello'")
  conn.wait_for_notify(20) { |where, _pid, payload| heard = [where, payload] }
  same(heard, [channel, 'hello'])
  conn.exec("UNLISTEN #{channel}")
  other.exec("NOTIFY #{channel}, 'again'")
  same(conn.wait_for_notify(0.3), nil)
  other.close
end

scenario('errors') do |conn|
  table = table(conn)
  conn.exec("INSERT INTO #{table} VALUES (1, 'a')")
  begin
    conn.exec("INSERT INTO #{table} VALUES (1, 'b')")
  rescue PG::UniqueViolation => e
    same(e.result.error_field(PG::PG_DIAG_CONSTRAINT_NAME), "#{table}_pkey")
  end
  same(state_of { conn.exec('SELECT nothing') }, '42703')
  same(state_of { conn.exec_params('SELECT $1::int', ['x']) }, '22P02')
  same(state_of { conn.exec_params('SELECT 1; SELECT 2', []) }, '42601')
  same(conn.exec('SELECT 1').getvalue(0, 0), '1')
  conn.exec("DROP TABLE #{table}")
end

scenario('notices') do |conn|
  said = []
  conn.set_notice_processor { |text| said << text }
  conn.exec("DO $$ BEGIN RAISE NOTICE 'psst'; END $$")
  same(said, ["NOTICE:  psst\n"])
end

scenario('a big result') do |conn|
  result = conn.exec('SELECT n, repeat(md5(n::text), 10) FROM generate_series(1, 50000) n')
  same([result.ntuples, result.getlength(49_999, 1)], [50_000, 320])
end

scenario('rows one at a time') do |conn|
  conn.send_query('SELECT generate_series(1, 20000)')
  conn.set_single_row_mode
  sum = 0
  conn.get_result.stream_each_row { |row| sum += row[0].to_i }
  same(sum, 200_010_000)
  same(conn.get_result, nil)
end

scenario('a pipeline') do |conn|
  conn.enter_pipeline_mode
  conn.send_query_params('SELECT $1::int', [1])
  conn.send_query_params('SELECT 1 / $1::int', [0])
  conn.send_query_params('SELECT 3', [])
  conn.pipeline_sync
  conn.send_query_params('SELECT 4', [])
  conn.pipeline_sync
  seen = []
  until seen.count(:sync) == 2
    result = conn.sync_get_result or next
    seen << case result.result_status
            when PG::PGRES_TUPLES_OK then result.getvalue(0, 0)
            when PG::PGRES_PIPELINE_SYNC then :sync
            when PG::PGRES_PIPELINE_ABORTED then :aborted
            else result.error_field(PG::PG_DIAG_SQLSTATE)
            end
  end
  same(seen, ['1', '22012', :aborted, :sync, '4', :sync])
  conn.exit_pipeline_mode
end

scenario('a query is cancelled') do |conn|
  conn.send_query('SELECT pg_sleep(60)')
  sleep 0.3
  same(conn.cancel, nil)
  same(state_of { conn.get_last_result }, '57014')
  same(conn.exec('SELECT 1').getvalue(0, 0), '1')
end

scenario('a connection is reset') do |conn|
  conn.exec("SET work_mem = '5MB'")
  conn.reset
  same(conn.exec('SHOW work_mem').getvalue(0, 0), '4MB')
end

scenario('settings and temporary tables stay') do |conn|
  conn.exec("SET work_mem = '5MB'; CREATE TEMP TABLE own (n int)")
  others = Array.new(4) { PG.connect }
  10.times do |n|
    others.each { |other| other.exec("SET work_mem = '7MB'") }
    conn.exec_params('INSERT INTO own VALUES ($1)', [n])
    same(conn.exec('SHOW work_mem').getvalue(0, 0), '5MB')
  end
  same(conn.exec('SELECT count(*) FROM own').getvalue(0, 0), '10')
  others.each(&:close)
end

scenario('encodings') do |conn|
  conn.set_client_encoding('LATIN1')
  same(conn.exec('SELECT chr(252)').getvalue(0, 0).bytes, [252])
  same(conn.internal_encoding, Encoding::ISO_8859_1)
end

scenario('a large object') do |conn|
  conn.transaction do
    oid = conn.lo_creat
    fd = conn.lo_open(oid, PG::INV_WRITE | PG::INV_READ)
    conn.lo_write(fd, "\x00\xff" * 50_000)
    conn.lo_lseek(fd, 0, PG::SEEK_SET)
    same(conn.lo_read(fd, 200_000).bytesize, 100_000)
    conn.lo_close(fd)
    conn.lo_unlink(oid)
  end
end

scenario('many threads') do |_|
  sums = Array.new(8) do |n|
    Thread.new do
      own = PG.connect
      (1..50).sum { |round| own.exec_params('SELECT $1::int * $2::int', [n, round]).getvalue(0, 0).to_i }.tap { own.close }
    end
  end
  same(sums.map(&:value), Array.new(8) { |n| n * 1275 })
end

scenario('a login that is refused') do |_|
  said = begin
    PG.connect(dbname: 'no_such_database').close
  rescue PG::ConnectionBad => e
    e.message
  end
  same(said.to_s.include?('no_such_database'), true)
end

puts "1..#{$count}"
