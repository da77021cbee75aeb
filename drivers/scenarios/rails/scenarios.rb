# ActiveRecord of Rails over ruby-pg: settings at each connection, statements named by the adapter,
# transactions with savepoints, migrations under an advisory lock, `reset!`, schemas.
# libpq's environment variables have the address.

require 'active_record'

$stdout.sync = true
$number = 0
$count = 0

# The adapter's own pool of `count` connections, which it takes and gives back.
def settings(**further)
  { adapter: 'postgresql', host: ENV.fetch('PGHOST'), port: ENV.fetch('PGPORT').to_i, username: ENV.fetch('PGUSER'),
    database: ENV.fetch('PGDATABASE'), sslmode: 'disable', pool: 10, checkout_timeout: 30, **further }
end

def name
  "rails#{Process.pid}_#{$number += 1}"
end

# One scenario with a pool of its own. It passes if it does not raise.
def scenario(title, **further)
  $count += 1
  ActiveRecord::Base.establish_connection(settings(**further))
  begin
    yield ActiveRecord::Base.connection
    puts "ok #{$count} - #{title}"
  rescue StandardError => e
    where = e.backtrace.grep(/scenarios/).first
    puts "not ok #{$count} - #{title}", "# #{e.class}: #{e.message.gsub("\n", "\n# ")} #{where}"
  ensure
    ActiveRecord::Base.remove_connection
  end
end

def same(got, wanted)
  raise "got #{got.inspect}, wanted #{wanted.inspect}" unless got == wanted
end

def refused(error)
  yield
  raise "#{error} was not raised"
rescue error => e
  e
end

# A table of its own and a model of it: name, size, and a list of tags.
def model(conn)
  table = name
  conn.create_table(table) do |t|
    t.string :name
    t.integer :size, default: 0
    t.text :tags, array: true
    t.jsonb :facts
    t.integer :lock_version, default: 0
    t.timestamps
  end
  conn.add_index(table, :name, unique: true)
  yield(Class.new(ActiveRecord::Base) do
    self.table_name = table
    define_singleton_method(:name) { 'Thing' }
  end)
ensure
  conn.execute('ROLLBACK') unless conn.raw_connection.transaction_status.zero?
  conn.drop_table(table, if_exists: true)
end

def statements(conn)
  conn.instance_variable_get(:@statements).to_a.size
end

scenario('settings of each connection') do |conn|
  5.times do
    same(conn.select_value('SHOW client_min_messages'), 'warning')
    same(conn.select_value('SHOW intervalstyle'), 'iso_8601')
    same(conn.select_value('SHOW timezone'), 'UTC')
    same(conn.select_value('SHOW standard_conforming_strings'), 'on')
  end
end

scenario('variables and schemas of the configuration',
         variables: { statement_timeout: '7s', lock_timeout: 3000 }, schema_search_path: 'pg_catalog, public') do |conn|
  10.times do
    same(conn.select_value('SHOW statement_timeout'), '7s')
    same(conn.select_value('SHOW lock_timeout'), '3s')
    same(conn.schema_search_path, 'pg_catalog, public')
    same(conn.select_value('SHOW search_path'), 'pg_catalog, public')
  end
end

scenario('settings are not those of other pools', variables: { statement_timeout: '7s' }) do |conn|
  others = Array.new(4) { PG.connect }
  10.times do
    others.each { |other| same(other.exec('SHOW statement_timeout').getvalue(0, 0), '0') }
    same(conn.select_value('SHOW statement_timeout'), '7s')
  end
  others.each(&:close)
end

scenario('models are created, found, changed and deleted') do |conn|
  model(conn) do |things|
    20.times { |n| things.create!(name: "n#{n}", size: n, tags: ['a', "b #{n}"], facts: { n: n }) }
    20.times do |n|
      found = things.find_by(name: "n#{n}")
      same([found.size, found.tags, found.facts], [n, ['a', "b #{n}"], { 'n' => n }])
      found.update!(size: n * 2)
    end
    same(things.where('size > ?', 30).order(:id).pluck(:size), [32, 34, 36, 38])
    things.find_by(name: 'n3').destroy!
    same(things.count, 19)
    same(things.where(name: %w[n1 n2 n3]).sum(:size), 6)
  end
end

[true, false].each do |prepared|
  scenario("with prepared statements: #{prepared}", prepared_statements: prepared) do |conn|
    model(conn) do |things|
      things.create!(name: 'a', size: 1)
      20.times { |n| same(things.where(size: 1).offset(n * 0).limit(1).pluck(:name), ['a']) }
      same(statements(conn).positive?, prepared)
    end
  end
end

scenario('more statements than are kept', statement_limit: 3) do |conn|
  model(conn) do |things|
    things.create!(name: 'a', size: 1)
    30.times do |n|
      same(things.where(size: 1).select("#{n % 6} AS n").limit(1).map(&:n), [n % 6])
    end
    same(statements(conn) <= 3, true)
  end
end

scenario('the same names for other statements on other connections') do |conn|
  model(conn) do |things|
    things.create!(name: 'a', size: 1)
    results = Array.new(6) do |place|
      Thread.new do
        ActiveRecord::Base.connection_pool.with_connection do
          Array.new(20) { things.where(size: 1).select("#{place} AS n").limit(1).map(&:n) }.flatten.uniq
        end
      end
    end
    same(results.map(&:value), (0..5).map { |place| [place] })
  end
end

scenario('a transaction that is rolled back') do |conn|
  model(conn) do |things|
    things.transaction { things.create!(name: 'kept') }
    things.transaction do
      things.create!(name: 'lost')
      raise ActiveRecord::Rollback
    end
    same(things.pluck(:name), ['kept'])
  end
end

scenario('transactions within transactions') do |conn|
  model(conn) do |things|
    things.transaction do
      things.create!(name: 'one')
      things.transaction(requires_new: true) do
        things.create!(name: 'two')
        raise ActiveRecord::Rollback
      end
      refused(ActiveRecord::RecordNotUnique) do
        things.transaction(requires_new: true) { things.create!(name: 'one') }
      end
      things.transaction(requires_new: true) { things.create!(name: 'three') }
    end
    same(things.order(:id).pluck(:name), %w[one three])
  end
end

%i[read_committed repeatable_read serializable].each do |level|
  scenario("isolation #{level} lasts for one transaction") do |conn|
    5.times do
      conn.transaction(isolation: level) do
        same(conn.select_value('SHOW transaction_isolation'), level.to_s.tr('_', ' '))
      end
      same(conn.select_value('SHOW transaction_isolation'), 'read committed')
    end
  end
end

scenario('an error within a transaction, and afterwards') do |conn|
  model(conn) do |things|
    5.times do
      things.transaction do
        refused(ActiveRecord::StatementInvalid) { conn.select_value('SELECT nothing') }
        refused(ActiveRecord::StatementInvalid) { things.count }
        raise ActiveRecord::Rollback
      end
      same(things.count, 0)
    end
  end
end

scenario('rows are locked') do |conn|
  model(conn) do |things|
    things.create!(name: 'a', size: 0)
    Array.new(4) do
      Thread.new do
        ActiveRecord::Base.connection_pool.with_connection do
          10.times { things.first.with_lock { things.first.increment!(:size) } }
        end
      end
    end.each(&:join)
    same(things.first.size, 40)
    things.transaction do
      things.lock.first
      waits = Thread.new do
        ActiveRecord::Base.connection_pool.with_connection do
          refused(ActiveRecord::LockWaitTimeout) { things.lock('FOR UPDATE NOWAIT').first }.class
        end
      end
      same(waits.value, ActiveRecord::LockWaitTimeout)
    end
  end
end

scenario('a row that is changed twice at a time') do |conn|
  model(conn) do |things|
    things.create!(name: 'a')
    one, other = things.first, things.first
    one.update!(size: 1)
    refused(ActiveRecord::StaleObjectError) { other.update!(size: 2) }
  end
end

scenario('many rows in one statement, and in parts') do |conn|
  model(conn) do |things|
    now = Time.now
    things.insert_all!(Array.new(500) { |n| { name: "n#{n}", size: n, created_at: now, updated_at: now } })
    things.upsert_all([{ name: 'n1', size: 9999, created_at: now, updated_at: now }], unique_by: :name)
    same(things.find_by(name: 'n1').size, 9999)
    seen = 0
    things.find_each(batch_size: 60) { seen += 1 }
    same(seen, 500)
    same(things.in_batches(of: 100).update_all('size = 0'), 500)
  end
end

scenario('a pool of connections for many threads', pool: 4) do |conn|
  model(conn) do |things|
    ActiveRecord::Base.connection_pool.release_connection
    Array.new(12) do |n|
      Thread.new do
        5.times do |turn|
          ActiveRecord::Base.connection_pool.with_connection { things.create!(name: "n#{n} #{turn}", size: n) }
        end
      end
    end.each(&:join)
    same(things.count, 60)
  end
end

# Models migrate under an advisory lock of a connection of its own.
def migrate(versions)
  steps = versions.map { |version, table| step(version, table) }
  ActiveRecord::Migration.verbose = false
  ActiveRecord::Migrator.new(:up, steps, ActiveRecord::SchemaMigration).migrate
end

def step(version, table)
  made = Class.new(ActiveRecord::Migration[6.1]) do
    define_method(:change) { create_table(table) { |t| t.string :name } }
  end
  made.new("step#{version}", version)
end

scenario('migrations') do |conn|
  versions = (1..3).to_h { |n| [20_240_000_000_000 + n + $count * 100, name] }
  conn.drop_table('schema_migrations', if_exists: true)
  migrate(versions)
  same(ActiveRecord::SchemaMigration.all_versions, versions.keys.map(&:to_s))
  versions.each_value { |table| same(conn.table_exists?(table), true) }
  # The lock is free again.
  5.times { same(conn.select_value('SELECT pg_try_advisory_lock(1) AND pg_advisory_unlock(1)'), true) }
  migrate(versions)
  versions.each_value { |table| conn.drop_table(table) }
  conn.drop_table('schema_migrations')
end

scenario('migrations while another migrates') do |conn|
  key = ActiveRecord::Migrator.new(:up, [], ActiveRecord::SchemaMigration).send(:generate_migrator_advisory_lock_id)
  other = PG.connect
  same(other.exec("SELECT pg_try_advisory_lock(#{key})").getvalue(0, 0), 't')
  refused(ActiveRecord::ConcurrentMigrationError) { migrate({ 20_250_000_000_001 => name }) }
  same(other.exec("SELECT pg_advisory_unlock(#{key})").getvalue(0, 0), 't')
  other.close
  conn.drop_table('schema_migrations', if_exists: true)
end

scenario('an advisory lock of the connection') do |conn|
  other = PG.connect
  10.times do |n|
    same(conn.get_advisory_lock(4700 + n), true)
    same(conn.select_value('SELECT 1'), 1)
    same(other.exec("SELECT pg_try_advisory_lock(#{4700 + n})").getvalue(0, 0), 'f')
    same(conn.release_advisory_lock(4700 + n), true)
  end
  other.close
end

scenario('reset! ends a transaction and makes the settings anew', variables: { statement_timeout: '7s' }) do |conn|
  model(conn) do |things|
    5.times do
      conn.begin_transaction(joinable: false)
      conn.materialize_transactions
      conn.execute("SET work_mem = '5MB'; CREATE TEMP TABLE own (n int)")
      things.create!(name: 'lost')
      conn.reset!
      same(conn.select_value('SHOW work_mem'), '4MB')
      same(conn.select_value("SELECT to_regclass('own') IS NULL"), true)
      same(conn.select_value('SHOW statement_timeout'), '7s')
      same(things.count, 0)
    end
  end
end

scenario('reset! forgets prepared statements') do |conn|
  model(conn) do |things|
    things.create!(name: 'a', size: 1)
    5.times do
      5.times { |n| same(things.where(size: 1).select("#{n} AS n").limit(1).map(&:n), [n]) }
      conn.reset!
      same(statements(conn), 0)
    end
  end
end

scenario('reconnect! and active?') do |conn|
  model(conn) do |things|
    things.create!(name: 'a', size: 1)
    5.times do
      same(conn.active?, true)
      conn.execute("SET work_mem = '5MB'")
      conn.reconnect!
      same(conn.select_value('SHOW work_mem'), '4MB')
      same(things.where(size: 1).limit(1).pluck(:name), ['a'])
    end
  end
end

scenario('a connection that was terminated is replaced') do |conn|
  conn.execute('BEGIN')
  pid = conn.select_value('SELECT pg_backend_pid()')
  other = PG.connect
  other.exec("SELECT pg_terminate_backend(#{pid})")
  sleep 0.02 until other.exec("SELECT FROM pg_stat_activity WHERE pid = #{pid}").ntuples.zero?
  refused(ActiveRecord::StatementInvalid) { conn.select_value('SELECT 1') }
  same(conn.active?, false)
  conn.reconnect!
  same(conn.select_value('SELECT 1'), 1)
  other.close
end

scenario('a schema of each tenant') do |conn|
  schemas = Array.new(3) { name }
  schemas.each_with_index do |schema, n|
    conn.create_schema(schema)
    conn.execute("CREATE TABLE #{schema}.things (n int); INSERT INTO #{schema}.things VALUES (#{n})")
  end
  10.times do
    schemas.each_with_index do |schema, n|
      conn.schema_search_path = "#{schema}, public"
      same(conn.select_value('SELECT n FROM things'), n)
      same(conn.exec_query('SELECT n FROM things WHERE n = $1', 'SQL', [[nil, n]], prepare: true).rows, [[n]])
    end
  end
  conn.schema_search_path = 'public'
  schemas.each { |schema| conn.drop_schema(schema) }
end

scenario('a table that changes under a prepared statement') do |conn|
  model(conn) do |things|
    things.create!(name: 'a', size: 1)
    other = PG.connect
    3.times do |n|
      3.times { same(things.find_by(size: 1).name, 'a') }
      other.exec("ALTER TABLE #{things.table_name} ADD COLUMN more#{n} int DEFAULT #{n}")
      # The adapter prepares the statement again: outside a transaction without a word.
      same(things.find_by(size: 1).name, 'a')
    end
    other.close
  end
end

scenario('a table that changes under a prepared statement, within a transaction') do |conn|
  model(conn) do |things|
    things.create!(name: 'a', size: 1)
    other = PG.connect
    things.find_by(size: 1)
    other.exec("ALTER TABLE #{things.table_name} ADD COLUMN more int")
    # The error that tells an application to run its transaction once more.
    refused(ActiveRecord::PreparedStatementCacheExpired) do
      things.transaction { things.find_by(size: 1) }
    end
    things.transaction { same(things.find_by(size: 1).name, 'a') }
    other.close
  end
end

scenario('read in two statements while others write') do |conn|
  model(conn) do |things|
    10.times do |n|
      id = things.insert({ name: "n#{n}", created_at: Time.now, updated_at: Time.now }).rows[0][0]
      same(things.find(id).name, "n#{n}")
    end
  end
end

scenario('the next number of a sequence') do |conn|
  model(conn) do |things|
    things.create!(name: 'a')
    conn.reset_pk_sequence!(things.table_name)
    same(things.create!(name: 'b').id, 2)
    same(conn.default_sequence_name(things.table_name, 'id'), "public.#{things.table_name}_id_seq")
  end
end

scenario('errors have their class') do |conn|
  model(conn) do |things|
    things.create!(name: 'a')
    refused(ActiveRecord::RecordNotUnique) { things.create!(name: 'a') }
    refused(ActiveRecord::StatementInvalid) { conn.execute('SELEKT') }
    refused(ActiveRecord::RangeError) { things.update_all('size = 2147483647 + 1') }
    refused(ActiveRecord::QueryCanceled) do
      conn.execute("SET statement_timeout = '200ms'")
      conn.execute('SELECT pg_sleep(10)')
    end
    same(things.count, 1)
  end
end

scenario('explain, structure and indexes are asked for') do |conn|
  model(conn) do |things|
    same(things.where(size: 1).explain.include?('Seq Scan'), true)
    same(conn.indexes(things.table_name).map(&:columns), [['name']])
    same(conn.columns(things.table_name).map(&:name),
         %w[id name size tags facts lock_version created_at updated_at])
    same(conn.primary_key(things.table_name), 'id')
  end
end

scenario('a query of binary and large values') do |conn|
  table = name
  conn.create_table(table) { |t| t.binary :data }
  made = Class.new(ActiveRecord::Base) { self.table_name = table }
  bytes = (0..255).to_a.pack('C*') * 4000
  id = made.create!(data: bytes).id
  same(made.find(id).data, bytes)
  conn.drop_table(table)
end

scenario('notifications, as ActionCable listens') do |conn|
  channel = name
  other = PG.connect
  conn.execute("LISTEN #{channel}")
  5.times do |n|
    other.exec("NOTIFY #{channel}, 'hello #{n}'")
    heard = nil
    conn.raw_connection.wait_for_notify(20) { |where, _pid, payload| heard = [where, payload] }
    same(heard, [channel, "hello #{n}"])
  end
  conn.execute("UNLISTEN #{channel}")
  other.close
end

puts "1..#{$count}"
