# client.rb COLLECTION URI…: as node/client.js, with Ruby's mongo.
require "mongo"
Mongo::Logger.logger.level = Logger::FATAL
# The driver is older than Ruby 3, which has no URI.decode any more.
def URI.decode(text) = URI.decode_www_form_component(text)

def use_driver(uri, name, done)
  client = Mongo::Client.new(uri, database: "shop")
  client.database.command(buildInfo: 1)
  done << "connect"
  things = client[name]
  things.insert_many((0...250).map { |n| { _id: n, a: n % 5 } })
  done << "insert"
  raise "not all found" unless things.find({}, batch_size: 50).to_a.size == 250
  done << "find"
  things.find({}, batch_size: 10).each { break }
  done << "close"
  things.update_many({ a: 1 }, "$set" => { b: 1 })
  raise "not all updated" unless things.find(b: 1).to_a.size == 50
  done << "update"
  raise "not all groups" unless things.aggregate([{ "$group" => { _id: "$a", n: { "$sum" => 1 } } }]).to_a.size == 5
  done << "aggregate"
  begin
    things.insert_one(_id: 1)
    raise "no error for a duplicate key"
  rescue Mongo::Error::OperationFailure => error
    raise unless error.message.include?("E11000")
    done << "duplicate"
  end
  things.indexes.create_one(a: 1)
  things.delete_many(a: 1)
  things.drop
  done << "drop"
ensure
  client&.close
end

name, *uris = ARGV
uris.each do |uri|
  done = []
  error = ""
  begin
    use_driver(uri, name, done)
  rescue StandardError => caught
    error = "#{caught.class} #{caught.message}".gsub(/\s+/, " ")
  end
  puts "#{done.join(' ')}: #{error}"
  $stdout.flush
end
