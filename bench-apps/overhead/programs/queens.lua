-- Tables, strings, closures and arithmetic, as an interpreter meets them.
local n, rounds = 8, tonumber(arg[1]) or 1
local function queens(n)
  local columns, up, down, found = {}, {}, {}, 0
  local function place(row)
    if row > n then found = found + 1 return end
    for c = 1, n do
      if not columns[c] and not up[row + c] and not down[row - c + n] then
        columns[c], up[row + c], down[row - c + n] = true, true, true
        place(row + 1)
        columns[c], up[row + c], down[row - c + n] = nil, nil, nil
      end
    end
  end
  place(1)
  return found
end
local total, words = 0, {}
for r = 1, rounds do
  total = total + queens(n)
  for i = 1, 2000 do
    local word = "w" .. (i * r) % 371
    words[word] = (words[word] or 0) + #word
  end
end
local keys = {}
for word in pairs(words) do keys[#keys + 1] = word end
table.sort(keys)
print(total, #keys, keys[1], words[keys[1]])
